"""The properties of SET, the configuration and requests: names, values and defaults. Their effects are documented at
the records that read them (`QuerySettings`, `PullLimits`, `ServerSettings`, …)."""
