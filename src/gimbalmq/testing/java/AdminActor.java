package gimbalmq.peer;

import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.topic.DeleteTopicSubCommand;

/**
 * RocketMQ's administration client, kept open so that a call takes milliseconds.
 *
 * <p>Result types moved to other packages between 4.x and 5.x, hence {@code var} throughout.
 */
final class AdminActor implements Actor {
    private final DefaultMQAdminExt admin;
    private final NettyRemotingClient remoting = new NettyRemotingClient(new NettyClientConfig());

    AdminActor(Args args) throws Exception {
        admin = new DefaultMQAdminExt(Clients.credentials(args), args.number("timeout_ms", 5000));
        Clients.configure(admin, args);
        admin.start();
        remoting.start();
    }

    @Override
    public Object handle(String op, Args args) throws Exception {
        switch (op) {
            case "describe":
                return Json.map("client_id", admin.buildMQClientId());
            case "create_topic":
                return createTopic(args);
            case "delete_topic":
                return deleteTopic(args.text("topic"));
            case "topics":
                return new TreeSet<>(admin.fetchAllTopicList().getTopicList());
            case "brokers":
                return masters();
            case "route":
                return route(args.text("topic"));
            case "topic_offsets":
                return topicOffsets(args.text("topic"));
            case "group_offsets":
                return groupOffsets(args);
            case "members":
                return members(args.text("group"));
            case "owned":
                return owned(args);
            case "reset":
                return reset(args);
            case "commit":
                return commit(args);
            case "call":
                return call(args);
            default:
                throw Actor.unknown(op);
        }
    }

    @Override
    public void close() {
        admin.shutdown();
        remoting.shutdown();
    }

    private Map<String, String> masters() throws Exception {
        Map<String, String> addresses = new LinkedHashMap<>();
        var table = admin.examineBrokerClusterInfo().getBrokerAddrTable();
        for (String name : new TreeSet<>(table.keySet())) {
            addresses.put(name, table.get(name).selectBrokerAddr());
        }
        return addresses;
    }

    private List<String> chosen(Args args) throws Exception {
        Map<String, String> masters = masters();
        List<String> names = args.has("brokers") ? args.texts("brokers") : new ArrayList<>(masters.keySet());
        List<String> addresses = new ArrayList<>();
        for (String name : names) {
            if (!masters.containsKey(name)) {
                throw new IllegalArgumentException("no broker '" + name + "', there are " + masters.keySet());
            }
            addresses.add(masters.get(name));
        }
        return addresses;
    }

    private Object createTopic(Args args) throws Exception {
        int queues = args.count("queues", 8);
        TopicConfig config = new TopicConfig(
            args.text("topic"),
            args.count("read_queues", queues),
            args.count("write_queues", queues),
            args.count("permission", 6));
        config.setOrder(args.flag("order"));
        for (String address : chosen(args)) {
            admin.createAndUpdateTopicConfig(address, config);
        }
        return null;
    }

    private Object deleteTopic(String topic) throws Exception {
        // The tool's own way: the order of the parameters below it differs between versions.
        for (String cluster : admin.examineBrokerClusterInfo().getClusterAddrTable().keySet()) {
            DeleteTopicSubCommand.deleteTopic(admin, cluster, topic);
        }
        return null;
    }

    private Object route(String topic) throws Exception {
        var route = admin.examineTopicRouteInfo(topic);
        Map<String, String> addresses = new HashMap<>();
        for (var broker : route.getBrokerDatas()) {
            addresses.put(broker.getBrokerName(), broker.selectBrokerAddr());
        }
        List<Object> brokers = new ArrayList<>();
        for (var queues : route.getQueueDatas()) {
            brokers.add(Json.map(
                "broker", queues.getBrokerName(),
                "address", addresses.get(queues.getBrokerName()),
                "read_queues", queues.getReadQueueNums(),
                "write_queues", queues.getWriteQueueNums(),
                "permission", queues.getPerm()));
        }
        return brokers;
    }

    private Object topicOffsets(String topic) throws Exception {
        List<Object> offsets = new ArrayList<>();
        admin.examineTopicStats(topic).getOffsetTable().forEach((queue, range) -> offsets.add(Json.map(
            "queue", Args.from(queue), "minimum", range.getMinOffset(), "maximum", range.getMaxOffset())));
        return offsets;
    }

    private Object groupOffsets(Args args) throws Exception {
        List<Object> offsets = new ArrayList<>();
        admin.examineConsumeStats(args.text("group"), args.text("topic")).getOffsetTable()
            .forEach((queue, place) -> offsets.add(Json.map(
                "queue", Args.from(queue),
                "committed", place.getConsumerOffset(),
                "maximum", place.getBrokerOffset())));
        return offsets;
    }

    private Object members(String group) throws Exception {
        List<Object> members = new ArrayList<>();
        for (var connection : admin.examineConsumerConnectionInfo(group).getConnectionSet()) {
            members.add(Json.map(
                "client_id", connection.getClientId(),
                "address", connection.getClientAddr(),
                "language", connection.getLanguage(),
                "version", connection.getVersion()));
        }
        return members;
    }

    private Object owned(Args args) throws Exception {
        return Args.from(admin.getConsumerRunningInfo(args.text("group"), args.text("client_id"), false)
            .getMqTable().keySet());
    }

    private Object reset(Args args) throws Exception {
        List<Object> offsets = new ArrayList<>();
        admin.resetOffsetByTimestamp(
                args.text("topic"), args.text("group"), args.number("timestamp_ms"), args.flag("force"))
            .forEach((queue, offset) -> offsets.add(Json.map("queue", Args.from(queue), "committed", offset)));
        return offsets;
    }

    private Object commit(Args args) throws Exception {
        MessageQueue queue = args.queue("queue");
        admin.updateConsumeOffset(
            masters().get(queue.getBrokerName()), args.text("group"), queue, args.number("offset"));
        return null;
    }

    /** A request of any code to any address, as the Java remoting layer would send it. */
    private Object call(Args args) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(args.count("code", 0), null);
        request.setExtFields(new HashMap<>(args.textMap("fields")));
        if (args.has("body")) {
            request.setBody(args.bytes("body"));
        }
        RemotingCommand answer = remoting.invokeSync(args.text("address"), request, args.number("timeout_ms", 5000));
        byte[] body = answer.getBody();
        return Json.map(
            "code", answer.getCode(),
            "remark", answer.getRemark(),
            "fields", answer.getExtFields() == null ? Map.of() : answer.getExtFields(),
            "body", body == null ? null : Base64.getEncoder().encodeToString(body));
    }
}
