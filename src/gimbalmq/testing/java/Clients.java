package gimbalmq.peer;

import java.util.HashSet;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** What all client kinds have in common: where the name server is, who they are, how they allocate. */
final class Clients {
    private Clients() {
    }

    static void configure(ClientConfig config, Args args) {
        config.setNamesrvAddr(args.text("nameserver"));
        config.setVipChannelEnabled(false);
        if (args.has("instance")) {
            config.setInstanceName(args.text("instance"));
        }
        if (args.has("unit")) {
            config.setUnitName(args.text("unit"));
        }
        if (args.has("namespace")) {
            config.setNamespace(args.text("namespace"));
        }
        if (args.has("client_ip")) {
            config.setClientIP(args.text("client_ip"));
        }
        config.setUseTLS(args.flag("tls"));
        // Java's 3 s are short for a machine that runs a whole cluster and its tests.
        config.setMqClientApiTimeout(args.count("api_timeout_ms", 15_000));
        config.setPollNameServerInterval(args.count("poll_nameserver_ms", config.getPollNameServerInterval()));
        config.setHeartbeatBrokerInterval(args.count("heartbeat_ms", config.getHeartbeatBrokerInterval()));
        config.setPersistConsumerOffsetInterval(
            args.count("persist_offsets_ms", config.getPersistConsumerOffsetInterval()));
    }

    static RPCHook credentials(Args args) {
        if (!args.has("access_key")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(args.text("access_key"), args.text("secret_key")));
    }

    /** Java's strategies by the names they go by on the wire. */
    static AllocateMessageQueueStrategy allocation(Args args) {
        String name = args.text("allocation", "AVG");
        if (name.startsWith("MACHINE_ROOM_NEARBY-")) {
            return nearby(simple(name.substring("MACHINE_ROOM_NEARBY-".length()), args));
        }
        return simple(name, args);
    }

    private static AllocateMessageQueueStrategy simple(String name, Args args) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(args.count("virtual_nodes", 10));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(args.texts("rooms")));
                return byRoom;
            case "CONFIG":
                AllocateMessageQueueByConfig fixed = new AllocateMessageQueueByConfig();
                fixed.setMessageQueueList(args.queues("fixed_queues"));
                return fixed;
            default:
                throw new IllegalArgumentException("unknown allocation strategy '" + name + "'");
        }
    }

    /** A room is the text before the first '-' of a broker's name and of a client id. */
    private static AllocateMessageQueueStrategy nearby(AllocateMessageQueueStrategy inner) {
        return new AllocateMachineRoomNearby(inner, new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return queue.getBrokerName().split("-", 2)[0];
            }

            @Override
            public String consumerDeployIn(String clientId) {
                return clientId.split("-", 2)[0];
            }
        });
    }
}
