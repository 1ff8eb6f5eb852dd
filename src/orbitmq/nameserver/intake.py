"""From request to registry: what brokers send, checked and turned into the registry's own values.

Rules of this file
1. A field that a registration cannot do without is named when it is missing; everything else takes its default.
2. A body whose checksum does not match is never looked into.
"""

from __future__ import annotations

import zlib

from orbitmq.limits.nameserver import BROKER_TIMEOUT_MS_MAX, NAMESERVER_FILTER_SERVERS_MAX, NAMESERVER_NAME_CHARS_MAX
from orbitmq.nameserver.routes import Registration, RegistrationError, TopicQueues, Version
from orbitmq.protocol.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfigWrapper, TopicRouteData
from orbitmq.protocol.remoting.frame import Command

_NEEDED = ("brokerName", "brokerAddr", "clusterName")


def read_registration(command: Command) -> Registration:
    """The content of a REGISTER_BROKER request.

    Raises RegistrationError for a missing field, a wrong checksum or a negative id, ProtocolError for a body that
    cannot be read.
    """
    body = bytes(command.body)
    checksum = command.integer("bodyCrc32")
    if checksum and checksum != zlib.crc32(body) & 0x7FFF_FFFF:
        raise RegistrationError("the checksum of the registration does not match its body")
    fields = command.fields
    missing = [name for name in _NEEDED if not fields.get(name)]
    if missing:
        raise RegistrationError(f"the registration has no {' and no '.join(missing)}")
    broker_id = command.integer("brokerId")
    if broker_id < 0:
        raise RegistrationError(f"broker id {broker_id} is negative: the broker has no role yet")
    content = _decode(body, command.version)
    wrapper = content.topic_config_serialize_wrapper
    if len(content.filter_server_list) > NAMESERVER_FILTER_SERVERS_MAX:
        raise RegistrationError(f"the registration names {len(content.filter_server_list)} filter servers")
    texts = (fields.get(field, "") for field in (*_NEEDED, "haServerAddr", "__ZONE_NAME"))
    for name in (*texts, *content.filter_server_list, *wrapper.topic_config_table):
        if len(name) > NAMESERVER_NAME_CHARS_MAX:
            raise RegistrationError(f"the registration has a name of {len(name)} characters: {name[:40]!r}...")
    timeout_ms = command.optional_integer("heartbeatTimeoutMillis")
    return Registration(
        cluster=fields["clusterName"],
        address=fields["brokerAddr"],
        group=fields["brokerName"],
        broker_id=broker_id,
        ha_address=fields.get("haServerAddr", ""),
        version=version_of(wrapper.data_version),
        topics={
            name: TopicQueues(topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
            for name, topic in wrapper.topic_config_table.items()
        },
        timeout_ms=None if timeout_ms is None else max(0, min(timeout_ms, BROKER_TIMEOUT_MS_MAX)),
        acting_master=command.boolean("enableActingMaster") if "enableActingMaster" in fields else None,
        zone=fields.get("__ZONE_NAME"),
        filter_servers=content.filter_server_list,
        mappings={
            name: mapping
            for name, mapping in wrapper.topic_queue_mapping_info_map.items()
            if name in wrapper.topic_config_table
        },
    )


def queues_of(route: TopicRouteData) -> dict[str, TopicQueues]:
    """Group -> queues, from the body of a REGISTER_TOPIC_IN_NAMESRV request."""
    return {
        queues.broker_name: TopicQueues(
            queues.read_queue_nums, queues.write_queue_nums, queues.perm, queues.topic_sys_flag
        )
        for queues in route.queue_datas
    }


def version_of(version: DataVersion) -> Version:
    return Version(version.counter, version.timestamp, version.state_version)


def _decode(body: bytes, version: int) -> RegisterBrokerBody:
    """Brokers before 3.0.11 send the topics alone, without the object around them."""
    content = RegisterBrokerBody.decode_any(body, version)
    if not content.topic_config_serialize_wrapper.topic_config_table and b'"topicConfigTable"' in body:
        bare = TopicConfigWrapper.decode(body)
        if bare.topic_config_table:
            return RegisterBrokerBody(bare)
    return content
