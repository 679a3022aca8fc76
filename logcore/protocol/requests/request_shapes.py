"""The fields of requests that handlers read, and that all versions accepted by this server have.

kio has a class for each version of each request. A field that only some versions have is not here, and handlers use
`getattr`; or it is marked with `Since` or `Until`, and handlers check `__version__`. A test compares this with kio.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, NamedTuple, Protocol
from uuid import UUID


class Since(NamedTuple):
    """The first version with the field."""

    version: int


class Until(NamedTuple):
    """The last version with the field."""

    version: int


class Versioned(Protocol):
    """Any request, and each part of one."""

    __version__: int


class LeaveGroupMember(Versioned, Protocol):
    member_id: str
    group_instance_id: str | None


class OffsetFetchTopic(Versioned, Protocol):
    name: str
    partition_indexes: Sequence[int]


class OffsetFetchGroup(Versioned, Protocol):
    """The group that a request is about, or one of its groups."""

    group_id: str
    topics: Sequence[OffsetFetchTopic] | None


class DeleteTopicsTopic(Versioned, Protocol):
    name: str | None
    topic_id: UUID | None


class HeartbeatRequest(Versioned, Protocol):
    group_id: str
    generation_id: int
    member_id: str


class LeaveGroupRequest(Versioned, Protocol):
    group_id: str
    member_id: Annotated[str, Until(2)]
    members: Annotated[Sequence[LeaveGroupMember], Since(3)]


class DescribeGroupsRequest(Versioned, Protocol):
    groups: Sequence[str]


class ListGroupsRequest(Versioned, Protocol): ...


class DeleteGroupsRequest(Versioned, Protocol):
    groups_names: Sequence[str]


class OffsetDeletePartition(Versioned, Protocol):
    partition_index: int


class OffsetDeleteTopic(Versioned, Protocol):
    name: str
    partitions: Sequence[OffsetDeletePartition]


class OffsetDeleteRequest(Versioned, Protocol):
    group_id: str
    topics: Sequence[OffsetDeleteTopic]


class OffsetForLeaderEpochPartition(Versioned, Protocol):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderEpochTopic(Versioned, Protocol):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochPartition]


class OffsetForLeaderEpochRequest(Versioned, Protocol):
    topics: Sequence[OffsetForLeaderEpochTopic]


class SaslHandshakeRequest(Versioned, Protocol):
    mechanism: str


class DeleteRecordsPartition(Versioned, Protocol):
    partition_index: int
    offset: int


class DeleteRecordsTopic(Versioned, Protocol):
    name: str
    partitions: Sequence[DeleteRecordsPartition]


class DeleteRecordsRequest(Versioned, Protocol):
    topics: Sequence[DeleteRecordsTopic]


class CreatePartitionsAssignment(Versioned, Protocol):
    broker_ids: Sequence[int]


class CreatePartitionsTopic(Versioned, Protocol):
    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(Versioned, Protocol):
    topics: Sequence[CreatePartitionsTopic]
    validate_only: bool


class AlterConfigsEntry(Versioned, Protocol):
    name: str
    value: str | None


class AlterConfigsResource(Versioned, Protocol):
    resource_type: int
    resource_name: str
    configs: Sequence[AlterConfigsEntry]


class AlterConfigsRequest(Versioned, Protocol):
    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class IncrementalAlterConfigsEntry(Versioned, Protocol):
    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsResource(Versioned, Protocol):
    resource_type: int
    resource_name: str
    configs: Sequence[IncrementalAlterConfigsEntry]


class IncrementalAlterConfigsRequest(Versioned, Protocol):
    resources: Sequence[IncrementalAlterConfigsResource]
    validate_only: bool


class AlterUserScramCredentialsDeletion(Versioned, Protocol):
    name: str
    mechanism: int


class AlterUserScramCredentialsUpsertion(Versioned, Protocol):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(Versioned, Protocol):
    deletions: Sequence[AlterUserScramCredentialsDeletion]
    upsertions: Sequence[AlterUserScramCredentialsUpsertion]


class DescribeClusterRequest(Versioned, Protocol): ...


class DescribeQuorumPartition(Versioned, Protocol):
    partition_index: int


class DescribeQuorumTopic(Versioned, Protocol):
    topic_name: str
    partitions: Sequence[DescribeQuorumPartition]


class DescribeQuorumRequest(Versioned, Protocol):
    topics: Sequence[DescribeQuorumTopic]


class WriteTxnMarkersTopic(Versioned, Protocol):
    name: str
    partition_indexes: Sequence[int]


class WriteTxnMarkersMarker(Versioned, Protocol):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[WriteTxnMarkersTopic]


class WriteTxnMarkersRequest(Versioned, Protocol):
    markers: Sequence[WriteTxnMarkersMarker]


class DescribeProducersTopic(Versioned, Protocol):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersRequest(Versioned, Protocol):
    topics: Sequence[DescribeProducersTopic]


class ListTransactionsRequest(Versioned, Protocol):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]


class DescribeTransactionsRequest(Versioned, Protocol):
    transactional_ids: Sequence[str]


class ConsumerGroupHeartbeatTopic(Versioned, Protocol):
    topic_id: UUID | None
    partitions: Sequence[int]


class ConsumerGroupHeartbeatRequest(Versioned, Protocol):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rebalance_timeout: timedelta
    subscribed_topic_names: tuple[str, ...] | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatTopic] | None


class ConsumerGroupDescribeRequest(Versioned, Protocol):
    group_ids: Sequence[str]


class ListOffsetsPartition(Versioned, Protocol):
    partition_index: int
    timestamp: int


class ListOffsetsTopic(Versioned, Protocol):
    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsRequest(Versioned, Protocol):
    topics: Sequence[ListOffsetsTopic]


class MetadataTopic(Versioned, Protocol):
    name: str | None


class MetadataRequest(Versioned, Protocol):
    topics: Sequence[MetadataTopic] | None


class OffsetCommitPartition(Versioned, Protocol):
    partition_index: int
    committed_offset: int
    committed_metadata: str | None


class OffsetCommitTopic(Versioned, Protocol):
    name: str
    partitions: Sequence[OffsetCommitPartition]


class OffsetCommitRequest(Versioned, Protocol):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    topics: Sequence[OffsetCommitTopic]


class OffsetFetchRequest(Versioned, Protocol):
    group_id: Annotated[str, Until(7)]
    topics: Annotated[Sequence[OffsetFetchTopic] | None, Until(7)]


class FindCoordinatorRequest(Versioned, Protocol):
    key: Annotated[str, Until(3)]


class CreateTopicsAssignment(Versioned, Protocol):
    partition_index: int
    broker_ids: Sequence[int]


class CreateTopicsConfig(Versioned, Protocol):
    name: str
    value: str | None


class CreateTopicsTopic(Versioned, Protocol):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[CreateTopicsAssignment]
    configs: Sequence[CreateTopicsConfig]


class CreateTopicsRequest(Versioned, Protocol):
    topics: Sequence[CreateTopicsTopic]
    validate_only: bool


class DeleteTopicsRequest(Versioned, Protocol):
    topic_names: Annotated[Sequence[str], Until(5)]
    topics: Annotated[Sequence[DeleteTopicsTopic], Since(6)]


class InitProducerIdRequest(Versioned, Protocol):
    transactional_id: str | None
    transaction_timeout: timedelta
    producer_epoch: Annotated[int, Since(3)]


class AddPartitionsToTxnTopic(Versioned, Protocol):
    name: str
    partitions: Sequence[int]


class AddPartitionsToTxnRequest(Versioned, Protocol):
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic]


class AddOffsetsToTxnRequest(Versioned, Protocol):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class EndTxnRequest(Versioned, Protocol):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class TxnOffsetCommitPartition(Versioned, Protocol):
    partition_index: int
    committed_offset: int
    committed_metadata: str | None


class TxnOffsetCommitTopic(Versioned, Protocol):
    name: str
    partitions: Sequence[TxnOffsetCommitPartition]


class TxnOffsetCommitRequest(Versioned, Protocol):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: Sequence[TxnOffsetCommitTopic]


class DescribeConfigsResource(Versioned, Protocol):
    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsRequest(Versioned, Protocol):
    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool


class AlterClientQuotasEntity(Versioned, Protocol):
    entity_type: str
    entity_name: str | None


class AlterClientQuotasOp(Versioned, Protocol):
    key: str
    value: float
    remove: bool


class AlterClientQuotasEntry(Versioned, Protocol):
    entity: Sequence[AlterClientQuotasEntity]
    ops: Sequence[AlterClientQuotasOp]


class AlterClientQuotasRequest(Versioned, Protocol):
    entries: Sequence[AlterClientQuotasEntry]
    validate_only: bool


class AlterPartitionReassignmentsPartition(Versioned, Protocol):
    partition_index: int
    replicas: Sequence[int] | None


class AlterPartitionReassignmentsTopic(Versioned, Protocol):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsPartition]


class AlterPartitionReassignmentsRequest(Versioned, Protocol):
    topics: Sequence[AlterPartitionReassignmentsTopic]


class CreateAclsCreation(Versioned, Protocol):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsRequest(Versioned, Protocol):
    creations: Sequence[CreateAclsCreation]


class AclFilterShape(Versioned, Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsRequest(Versioned, Protocol):
    filters: Sequence[AclFilterShape]


class DescribeAclsRequest(AclFilterShape, Protocol): ...


class DescribeClientQuotasComponent(Versioned, Protocol):
    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest(Versioned, Protocol):
    components: Sequence[DescribeClientQuotasComponent]
    strict: bool


class DescribeLogDirsTopic(Versioned, Protocol):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsRequest(Versioned, Protocol):
    topics: Sequence[DescribeLogDirsTopic] | None


class DescribeTopicPartitionsTopic(Versioned, Protocol):
    name: str


class DescribeTopicPartitionsCursor(Versioned, Protocol):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsRequest(Versioned, Protocol):
    topics: Sequence[DescribeTopicPartitionsTopic]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsCursor | None


class DescribeUserScramCredentialsUser(Versioned, Protocol):
    name: str


class DescribeUserScramCredentialsRequest(Versioned, Protocol):
    users: Sequence[DescribeUserScramCredentialsUser] | None


class ElectLeadersTopic(Versioned, Protocol):
    topic: str
    partitions: Sequence[int]


class ElectLeadersRequest(Versioned, Protocol):
    topic_partitions: Sequence[ElectLeadersTopic] | None


class ListConfigResourcesRequest(Versioned, Protocol): ...


class ListPartitionReassignmentsTopic(Versioned, Protocol):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsRequest(Versioned, Protocol):
    topics: Sequence[ListPartitionReassignmentsTopic] | None


class JoinGroupProtocol(Versioned, Protocol):
    name: str
    metadata: bytes


class JoinGroupRequest(Versioned, Protocol):
    group_id: str
    session_timeout: timedelta
    member_id: str
    protocol_type: str
    protocols: Sequence[JoinGroupProtocol]
    rebalance_timeout: Annotated[timedelta, Since(1)]


class SyncGroupAssignment(Versioned, Protocol):
    member_id: str
    assignment: bytes


class SyncGroupRequest(Versioned, Protocol):
    group_id: str
    generation_id: int
    member_id: str
    assignments: Sequence[SyncGroupAssignment]


class SaslAuthenticateRequest(Versioned, Protocol):
    auth_bytes: bytes
