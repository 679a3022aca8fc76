"""The calls of Kafka's command-line tools that are made of us and of Apache Kafka, in order, one after the other."""

from __future__ import annotations

from typing import Final, NamedTuple


class Call(NamedTuple):
    """The tool ends with the same exit code and prints the same, but for nodes, ids, times and addresses. `differs`:
    why it prints something else of us, where it ends the same, with the same error. `refuse`: why it ends otherwise.
    """

    tool: str
    arguments: str
    differs: str = ""
    refuse: str = ""
    typed: str = ""  # on its standard input


_TOPICS, _GROUPS, _TRANSACTIONS = "TopicCommand", "consumer.group.ConsumerGroupCommand", "TransactionsCommand"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
_REASSIGN: Final = "reassign.ReassignPartitionsCommand"
_CONSUMER: Final = "consumer.ConsoleConsumer"
_SHARE_GROUPS, _STREAMS_GROUPS = "consumer.group.ShareGroupCommand", "streams.StreamsGroupCommand"

BEFORE_THE_COMMAND: Final = (_TRANSACTIONS, "MetadataQuorumCommand", "FeatureCommand")
"""They want the address first."""

_OUR_WORDS: Final = "what is wrong is said in our words, and as the same error"
_BY_ITSELF: Final = "Apache Kafka sets min.insync.replicas by itself, and this one is set up with log.retention.ms"
_NOT_INTERNAL: Final = "topics of queries are not internal, as kafka-python would not read them; and " + _BY_ITSELF
_KNOWN_SETTINGS: Final = "only settings that have an effect are taken"
_CONNECTIONS: Final = "how many connections an address may have is in the configuration"
_NO_METRICS: Final = "clients send no metrics here"
_NO_LOGGERS: Final = "the level of log lines is in the configuration"
_NO_SHARES: Final = "there are no share groups"
_OPEN_ONLY: Final = "a transaction that is over has no duration; Apache Kafka counts on from its start"
_ONE_NODE: Final = "a single node has no metadata log, and its cluster's id is of another form"
_MEMBERS: Final = "nodes are added and removed by `millstream cluster`"
_FEATURES: Final = "these are the features of clients; those of Apache Kafka's own metadata are not there"
_FEWER: Final = "Apache Kafka answers more requests"
_IN_THE_CONFIGURATION: Final = "rights are in the configuration, and the error says so"
_SETTINGS_OF_TOPICS: Final = "settings of ours and of Kafka 3 besides, segments of 128 MiB, no limit for times to come"
_SHORTER: Final = "sessions last 15 s by default"

TOPICS: Final = (
    Call(_TOPICS, "--create --topic orders --partitions 2 --config retention.ms=1000000"),
    Call(_TOPICS, "--create --topic orders --partitions 2", _OUR_WORDS),
    Call(_TOPICS, "--create --topic orders --if-not-exists"),
    Call(_TOPICS, "--create --topic odd --config no.such.setting=1"),
    Call(_TOPICS, "--create --topic odd --config retention.ms=soon"),
    Call(_TOPICS, "--create --topic odd/name", _OUR_WORDS),
    Call(_TOPICS, "--create --topic odd --partitions 0"),
    Call(_TOPICS, "--create --topic odd --replication-factor 5", _OUR_WORDS),
    Call(_TOPICS, "--create --topic placed --replica-assignment {node},{node}"),
    Call(_TOPICS, "--list --exclude-internal", _NOT_INTERNAL),
    Call(_TOPICS, "--list --topic ord.*"),
    Call(_TOPICS, "--describe --topic orders", _BY_ITSELF),
    Call(_TOPICS, "--describe --exclude-internal", _NOT_INTERNAL),
    Call(_TOPICS, "--describe --topics-with-overrides --exclude-internal", _NOT_INTERNAL),
    Call(_TOPICS, "--describe --under-replicated-partitions"),
    Call(_TOPICS, "--describe --unavailable-partitions"),
    Call(_TOPICS, "--describe --at-min-isr-partitions --exclude-internal", _NOT_INTERNAL),
    Call(_TOPICS, "--describe --topic missing"),
    Call(_TOPICS, "--describe --topic missing --if-exists"),
    Call(_TOPICS, "--alter --topic orders --partitions 3"),
    Call(_TOPICS, "--alter --topic orders --partitions 1", _OUR_WORDS),
    Call(_TOPICS, "--alter --topic missing --partitions 3"),
    Call(_TOPICS, "--delete --topic placed"),
    Call(_TOPICS, "--delete --topic missing"),
    Call(_TOPICS, "--delete --topic missing --if-exists"),
)

SETTINGS: Final = (
    Call(_CONFIGS, "--describe --entity-type topics --entity-name orders", _BY_ITSELF),
    Call(_CONFIGS, "--describe --all --entity-type topics --entity-name orders", _SETTINGS_OF_TOPICS),
    Call(_CONFIGS, "--describe --entity-type topics --entity-name missing"),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --add-config cleanup.policy=compact"),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --delete-config cleanup.policy"),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --delete-config segment.bytes"),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --add-config no.such.setting=1", _OUR_WORDS),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name orders --add-config retention.ms=soon", _OUR_WORDS),
    Call(_CONFIGS, "--alter --entity-type topics --entity-name missing --add-config retention.ms=1", _OUR_WORDS),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-name {node}"),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-default", _BY_ITSELF),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-name 77"),
    Call(_CONFIGS, "--alter --entity-type brokers --entity-name {node} --add-config"
         " leader.replication.throttled.rate=1000000"),
    Call(_CONFIGS, "--alter --entity-type brokers --entity-name {node} --delete-config"
         " leader.replication.throttled.rate"),
    Call(_CONFIGS, "--alter --entity-type brokers --entity-name {node} --add-config no.such.setting=1",
         refuse=_KNOWN_SETTINGS),
    Call(_CONFIGS, "--describe --entity-type broker-loggers --entity-name {node}", refuse=_NO_LOGGERS),
    Call(_CONFIGS, "--alter --entity-type groups --entity-name readers --add-config"
         " consumer.session.timeout.ms=50000"),
    Call(_CONFIGS, "--describe --entity-type groups --entity-name readers", _SHORTER),
    Call(_CONFIGS, "--alter --entity-type clients --entity-name importer --add-config producer_byte_rate=1000000"),
    Call(_CONFIGS, "--describe --entity-type clients --entity-name importer"),
    Call(_CONFIGS, "--alter --entity-type users --entity-default --add-config consumer_byte_rate=1000000"),
    Call(_CONFIGS, "--describe --entity-type users --entity-default"),
    Call(_CONFIGS, "--alter --entity-type users --entity-default --delete-config consumer_byte_rate"),
    Call(_CONFIGS, "--alter --entity-type users --entity-name ana --add-config SCRAM-SHA-256=[password=sesame]"),
    Call(_CONFIGS, "--describe --entity-type users --entity-name ana"),
    Call(_CONFIGS, "--alter --entity-type users --entity-name ana --delete-config SCRAM-SHA-256"),
    Call(_CONFIGS, "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=100",
         refuse=_CONNECTIONS),
    Call(_CONFIGS, "--describe --entity-type ips", _CONNECTIONS),
    Call("ClientMetricsCommand", "--alter --name probe --metrics org.apache.kafka --interval 60000",
         refuse=_NO_METRICS),
    Call("ClientMetricsCommand", "--list", _NO_METRICS),
    Call("ClientMetricsCommand", "--delete --name probe", refuse=_NO_METRICS),
)  # fmt: skip

RECORDS: Final = (
    Call("ConsoleProducer", "--topic orders --reader-property parse.key=true --reader-property key.separator=:",
         typed="a:1\nb:2\nc:3\n"),
    Call("ConsoleProducer", "--topic orders --reader-property parse.key=true", typed="no separator\n"),
    Call("GetOffsetShell", "--topic orders"),
    Call("GetOffsetShell", "--topic orders --time earliest"),
    Call("GetOffsetShell", "--topic first --time max-timestamp"),
    Call("GetOffsetShell", "--topic-partitions orders:0-1,first --time 1000"),
    Call("GetOffsetShell", "--topic missing"),
    Call(_CONSUMER, "--topic orders --group reading --from-beginning --max-messages 3"
         " --formatter-property print.key=true --formatter-property print.partition=true"
         " --formatter-property print.offset=true"),
    Call(_CONSUMER, "--topic first --partition 0 --offset 0 --max-messages 1 --isolation-level read_committed"),
    Call(_CONSUMER, "--topic first --group later --timeout-ms 3000"),
    Call("ProducerPerformance", "--topic measured --num-records 100 --record-size 10 --throughput -1"),
    Call("ProducerPerformance", "--topic measured --num-records 100 --record-size 10 --throughput -1"
         " --transactional-id measuring --transaction-duration-ms 100000"),
    Call("ConsumerPerformance", "--topic measured --num-records 200 --group measuring"),
    Call("EndToEndLatency", "{address} measured 10 all 10"),
    Call("VerifiableProducer", "--topic verified --max-messages 10"),
    Call("VerifiableConsumer", "--topic verified --group-id verifying --max-messages 10"),
    Call("VerifiableConsumer", "--topic verified --group-id verifying-anew --max-messages 10"
         " --group-protocol consumer"),
    Call("DeleteRecordsCommand", "--offset-json-file {records}"),
    Call("DeleteRecordsCommand", "--offset-json-file {too_many_records}"),
)  # fmt: skip

GROUPS: Final = (
    Call(_GROUPS, "--list"),
    Call(_GROUPS, "--list --state"),
    Call(_GROUPS, "--list --type consumer"),
    Call(_GROUPS, "--describe --group nobody"),
    Call(_GROUPS, "--describe --group later --offsets"),
    Call(_GROUPS, "--describe --group later --members --verbose"),
    Call(_GROUPS, "--describe --group later --state"),
    Call(_GROUPS, "--describe --all-groups"),
    Call(_GROUPS, "--reset-offsets --group later --topic orders --to-earliest --execute"),
    Call(_GROUPS, "--reset-offsets --group later --topic orders:0 --to-offset 1000 --dry-run"),
    Call(_GROUPS, "--reset-offsets --group later --all-topics --shift-by 1 --dry-run"),
    Call(_GROUPS, "--reset-offsets --group later --topic orders --to-datetime 2020-01-01T00:00:00.000 --export"),
    Call(_GROUPS, "--reset-offsets --group later --topic missing --to-latest --execute"),
    Call(_GROUPS, "--describe --group later"),
    Call(_GROUPS, "--delete-offsets --group later --topic orders"),
    Call(_GROUPS, "--delete-offsets --group nobody --topic orders"),
    Call(_GROUPS, "--delete --group later"),
    Call(_GROUPS, "--delete --group nobody"),
    Call("GroupsCommand", "--list"),
    Call("GroupsCommand", "--list --group-type consumer"),
    Call(_SHARE_GROUPS, "--list"),
    Call(_SHARE_GROUPS, "--describe --group nobody", refuse=_NO_SHARES),
    Call(_STREAMS_GROUPS, "--list"),
    Call("StreamsResetter", "--application-id word-count --input-topics orders --force"),
    Call("StreamsResetter", "--application-id word-count --input-topics missing"),
)

OPERATIONS: Final = (
    Call(_TRANSACTIONS, "list"),
    Call(_TRANSACTIONS, "list --duration-filter 1000", _OPEN_ONLY),
    Call(_TRANSACTIONS, "describe --transactional-id measuring", _OPEN_ONLY),
    Call(_TRANSACTIONS, "describe --transactional-id nobody"),
    Call(_TRANSACTIONS, "find-hanging --broker-id {node}"),
    Call(_TRANSACTIONS, "describe-producers --topic orders --partition 0"),
    Call("MetadataQuorumCommand", "describe --status", _ONE_NODE),
    Call("MetadataQuorumCommand", "describe --replication --human-readable", _ONE_NODE),
    Call("MetadataQuorumCommand", "remove-controller --controller-id 77"
         " --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ", _MEMBERS),
    Call("LogDirsCommand", "--describe --topic-list first"),
    Call("LogDirsCommand", "--describe --broker-list 77"),
    Call("ClusterTool", "cluster-id"),
    Call("ClusterTool", "list-endpoints"),
    Call("ClusterTool", "unregister --id 77", refuse=_MEMBERS),
    Call("BrokerApiVersionsCommand", "", _FEWER),
    Call("FeatureCommand", "describe", _FEATURES),
    Call("FeatureCommand", "upgrade --feature metadata.version=1", _FEATURES),
    Call("LeaderElectionCommand", "--election-type preferred --topic orders --partition 0"),
    Call("LeaderElectionCommand", "--election-type preferred --all-topic-partitions"),
    Call("LeaderElectionCommand", "--election-type unclean --topic missing --partition 0", _OUR_WORDS),
    Call("AclCommand", "--list", _IN_THE_CONFIGURATION),
    Call("AclCommand", "--add --allow-principal User:ana --operation Read --topic orders --force",
         _IN_THE_CONFIGURATION),
    Call(_REASSIGN, "--generate --topics-to-move-json-file {moved} --broker-list {node}"),
    Call(_TOPICS, "--delete --topic orders"),
)  # fmt: skip

REASSIGNMENTS: Final = (
    Call(_REASSIGN, "--list"),
    Call(_REASSIGN, "--verify --reassignment-json-file {plan}"),
    Call(_REASSIGN, "--execute --throttle 5000000 --reassignment-json-file {plan}"),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-name {node}"),
    Call(_REASSIGN, "--list"),
    Call(_REASSIGN, "--cancel --reassignment-json-file {plan}"),
    Call(_REASSIGN, "--execute --reassignment-json-file {plan}"),
    Call(_REASSIGN, "--verify --reassignment-json-file {plan}"),
    Call(_CONFIGS, "--describe --entity-type brokers --entity-name {node}"),
    Call(_TRANSACTIONS, "abort --topic hanging --partition 0 --start-offset 0"),
)
