"""The public classes: `Producer` and `PushConsumer` (import them from `gimbalmq`)."""
