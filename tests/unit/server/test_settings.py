"""Settings from files, environment and flags: precedence, errors that help, promises that are not kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.server.configuration.runtime_settings import shown_settings
from orbitmq.server.configuration.settings import Overrides, Role, ServerSettings, load_settings
from orbitmq.server.configuration.tls_settings import ClientCertificates
from orbitmq.store.settings import FlushDiskType

BOTH = (Role.NAMESERVER, Role.BROKER)

AS_SHIPPED = """
# Licensed to somebody, as every file that comes with RocketMQ.
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""

FROM_THE_FIELD = """
brokerClusterName=orders
brokerName=broker-b
brokerId=0
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
defaultTopicQueueNums=4
autoCreateTopicEnable=false
listenPort=10921
deleteWhen=04;16
fileReservedTime=120
mappedFileSizeCommitLog=1073741824
diskMaxUsedSpaceRatio=88
storePathConsumeQueue=/data/consumequeue
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
sendMessageThreadPoolNums=128
messageDelayLevel=1s 5s \\
    10s
"""


def load(
    tmp_path: Path,
    text: str | None = None,
    *flags: str,
    roles: tuple[Role, ...] = BOTH,
    name: str = "broker.conf",
    environment: dict[str, str] | None = None,
    overrides: Overrides | None = None,
) -> ServerSettings:
    config = None
    if text is not None:
        config = tmp_path / name
        config.write_text(text, encoding="utf-8")
    return load_settings(
        roles=roles,
        config=config,
        environment=environment or {},
        flags=flags,
        overrides=overrides or Overrides(data=tmp_path / "data"),
    )


def test_without_a_word_everything_is_on_loopback_with_the_usual_ports(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.host == "127.0.0.1"
    assert (settings.nameserver_port, settings.broker_port) == (9876, 10911)
    assert (settings.nameserver.bind_address, settings.nameserver.listen_port) == ("127.0.0.1", 9876)
    assert settings.warnings == ()
    assert settings.nameserver.kv_config_path == str(tmp_path / "data" / "namesrv" / "kvConfig.json")


def test_a_file_as_rocketmq_ships_it(tmp_path: Path) -> None:
    settings = load(tmp_path, AS_SHIPPED)
    assert settings.store.file_reserved_time_hours == 48
    assert settings.store.delete_when == (4,)
    assert settings.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert settings.warnings == ()


def test_a_file_from_the_field(tmp_path: Path) -> None:
    settings = load(tmp_path, FROM_THE_FIELD)
    assert settings.broker.namesrv_addr == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert settings.broker_port == 10921
    assert settings.nameserver_port == 9876, "listenPort in a shared file is the broker's"
    assert settings.broker.auto_create_topic_enable is False
    assert settings.broker.message_delay_level == "1s 5s 10s"
    assert settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert settings.store.delete_when == (4, 16)
    assert [warning.split(": ")[1].split(" ")[0] for warning in settings.warnings] == [
        "storePathConsumeQueue",
        "sendMessageThreadPoolNums",
    ]


def test_toml(tmp_path: Path) -> None:
    text = """
    brokerName = "broker-t"
    deleteWhen = [4, 16]
    autoCreateTopicEnable = false
    messageDelayLevel = ["1s", "2s"]
    tls.server.mode = "permissive"

    [broker]
    listenPort = 20911
    namesrvAddr = ["a:1", "b:2"]

    [nameserver]
    listenPort = 19876
    orderMessageEnable = true
    """
    settings = load(tmp_path, text, name="orbitmq.toml")
    assert settings.broker.broker_name == "broker-t"
    assert (settings.broker_port, settings.nameserver_port) == (20911, 19876)
    assert settings.nameserver.order_message_enable is True
    assert settings.store.delete_when == (4, 16)
    assert settings.broker.message_delay_level == "1s 2s"
    assert settings.broker.namesrv_addr == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("brokerName = ", "is not TOML"),
        ("diskMaxUsedSpaceRatio = 7.5", "a float is no value"),
        ("[nameserver]\nflushDiskType = 'SYNC_FLUSH'", "unknown key 'flushDiskType'"),
        ("flushDiskTyp = 'SYNC_FLUSH'", "did you mean flushDiskType"),
    ],
)
def test_wrong_toml(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load(tmp_path, text, name="orbitmq.toml")


def test_a_name_server_alone_reads_its_own_file(tmp_path: Path) -> None:
    settings = load(tmp_path, "listenPort=9999\nsupportActingMaster=true\n", roles=(Role.NAMESERVER,))
    assert settings.nameserver_port == settings.nameserver.listen_port == 9999
    assert settings.nameserver.support_acting_master is True
    assert settings.broker_port == 10911


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = "fileReservedTime=1\nmaxIndexNum=1000\nmaxHashSlotNum=10\n"
    environment = {"ORBITMQ_MAX_INDEX_NUM": "2000", "ORBITMQ_maxHashSlotNum": "20", "PATH": "/bin"}
    settings = load(tmp_path, file, "maxHashSlotNum=30", environment=environment)
    assert settings.store.file_reserved_time_hours == 1
    assert settings.store.max_index_num == 2000
    assert settings.store.max_hash_slot_num == 30
    assert settings.given["maxIndexNum"] == "environment variable ORBITMQ_MAX_INDEX_NUM"


def test_the_commands_own_flags_win_over_all(tmp_path: Path) -> None:
    overrides = Overrides(data=tmp_path / "mine", host="0.0.0.0", nameserver_port=1, broker_port=2)
    text = f"storePathRootDir={tmp_path}/other\nbindAddress=127.0.0.2\nlistenPort=3\n"
    settings = load(tmp_path, text, overrides=overrides)
    assert settings.data == tmp_path / "mine"
    assert settings.host == settings.nameserver.bind_address == "0.0.0.0"
    assert (settings.nameserver_port, settings.broker_port) == (1, 2)


def test_the_data_directory_comes_from_the_file_when_no_flag_names_it(tmp_path: Path) -> None:
    assert load(tmp_path, f"storePathRootDir={tmp_path}/other", overrides=Overrides()).data == tmp_path / "other"


def test_an_unknown_key_names_its_place_and_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, "brokerName=a\nmappedFileSizCommitLog=1024\n")
    assert "broker.conf, line 2: unknown key 'mappedFileSizCommitLog'" in str(caught.value)
    assert "did you mean mappedFileSizeCommitLog?" in str(caught.value)


def test_an_old_spelling_that_rocketmq_passes_over_is_passed_over_with_a_word(tmp_path: Path) -> None:
    settings = load(tmp_path, "mapedFileSizeCommitLog=1024\n")
    assert settings.store.mapped_file_size_commit_log == 1 << 30
    (warning,) = settings.warnings
    assert "mapedFileSizeCommitLog has no effect. Old spelling of mappedFileSizeCommitLog" in warning


def test_an_unknown_key_unlike_any_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="see the list of keys"):
        load(tmp_path, None, "zzz=1")


def test_an_unknown_environment_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ORBITMQ_FLUSH_DISC_TYPE.*did you mean ORBITMQ_FLUSH_DISK_TYPE"):
        load(tmp_path, environment={"ORBITMQ_FLUSH_DISC_TYPE": "SYNC_FLUSH"})


def test_variables_of_the_other_role_and_of_the_project_are_passed_over(tmp_path: Path) -> None:
    environment = {"ORBITMQ_REQUIRE_ALL": "1", "ORBITMQ_FLUSH_DISK_TYPE": "SYNC_FLUSH"}
    assert load(tmp_path, roles=(Role.NAMESERVER,), environment=environment).given == {}


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("flushDiskType=sync", "give one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("autoCreateTopicEnable=yes", "give true or false"),
        ("maxIndexNum=many", "give a whole number"),
        ("diskMaxUsedSpaceRatio=99", r"give 10 to 95 \(percent\)"),
        ("listenPort=70000", "give 0 to 65535"),
        ("deleteWhen=24", "give hours from 00 to 23"),
        ("deleteWhen=", "give hours from 00 to 23"),
        ("namesrvAddr=localhost", "give host:port"),
        ("namesrvAddr=localhost:0", "give host:port"),
        ("brokerName=a b", "give 1 to 127 of the characters"),
        ("messageDelayLevel=1s  5s", "one blank between them"),
        ("messageDelayLevel=1x", "units s m h d"),
        ("storePathCommitLog=", "give a path"),
    ],
)
def test_wrong_values_say_what_is_allowed(tmp_path: Path, setting: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        load(tmp_path, None, setting)
    assert f"--set {setting.partition('=')[0]}: " in str(caught.value)


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="3 settings are wrong") as caught:
        load(tmp_path, "brokerNam=a\nenableControllerMode=true\nlistenPort=x\n")
    assert all(line in str(caught.value) for line in ("line 1", "line 2", "line 3"))


@pytest.mark.parametrize(
    "setting",
    [
        "authenticationProvider=com.example.Ldap",
        "authorizationStrategy=com.example.Mine",
        "enableDLegerCommitLog=true",
        "enableControllerMode=true",
        "enableSlaveActingMaster=true",
        "duplicationEnable=true",
        "storeType=defaultRocksDB",
        "readUnCommitted=true",
        "timerStopEnqueue=true",
    ],
)
def test_a_promise_that_is_not_kept_stops_the_start(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ConfigurationError, match="promises what is not built yet"):
        load(tmp_path, None, setting)


@pytest.mark.parametrize(
    "setting",
    [
        "duplicationEnable=FALSE",
        "tls.server.mode=permissive",
        "messageStorePlugIn=",
    ],
)
def test_asking_for_nothing_unbuilt_is_fine(tmp_path: Path, setting: str) -> None:
    assert load(tmp_path, None, setting).warnings == ()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["authorizationEnabled=true"], "everybody could be whoever they say"),
        (["authenticationWhitelist=34, x"], "authenticationWhitelist has 'x', which is no code"),
        (["authorizationWhitelist=-1"], "authorizationWhitelist has '-1', which is no code"),
        (
            ["authorizationWhitelist=apache.rocketmq.v2.SendMessage"],
            "full names such as apache.rocketmq.v2.SendMessageReq",
        ),
        (["authenticationWhitelist=Telemetry"], "no request message of gRPC"),
    ],
)
def test_a_door_that_would_stay_open_stops_the_start(tmp_path: Path, flags: list[str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load(tmp_path, None, *flags)


def test_users_of_rocketmq_find_their_keys(tmp_path: Path) -> None:
    package = "org.apache.rocketmq.auth"
    settings = load(
        tmp_path,
        None,
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        f"authenticationProvider={package}.authentication.provider.DefaultAuthenticationProvider",
        f"authorizationMetadataProvider={package}.authorization.provider.LocalAuthorizationMetadataProvider",
        f"authenticationStrategy={package}.authentication.strategy.StatefulAuthenticationStrategy",
        "authenticationWhitelist=34, 105,apache.rocketmq.v2.HeartbeatRequest,",
        "authorizationWhitelist=46, apache.rocketmq.v2.TelemetryCommand",
        "userCacheMaxNum=5",
    )
    access = settings.access
    assert (access.authenticates, access.authorizes) == (True, True)
    assert (access.unsigned, access.unjudged) == ({34, 105, Rpc.HEARTBEAT}, {46, Rpc.TELEMETRY})
    assert [("userCacheMaxNum" in warning) for warning in settings.warnings] == [True]


def test_tls_files_are_read_where_they_are_named(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.server.certPath = /a.pem\ntls.server.need.client.auth = require\ntls.server.keyPassword = marked\n"
    )
    text = f"tls.server.certPath = /b.pem\ntls.config.file = {file}\n"
    tls = load(tmp_path, text).tls
    assert (tls.cert_path, tls.client_certificates) == ("/a.pem", ClientCertificates.REQUIRED)
    settings = load(tmp_path, text, "tls.server.certPath=/c.pem")
    assert settings.tls.cert_path == "/c.pem", "a flag wins over every file"
    shown = shown_settings(settings)
    assert shown["tls.server.need.client.auth"] == "require"
    assert "marked" not in str(shown)
    assert (settings.tls.key_password, shown["tls.server.keyPassword"]) == ("marked", "******")
    file.write_text("brokerName = b\n")
    with pytest.raises(ConfigurationError, match="no place in a file of TLS settings"):
        load(tmp_path, text)
    file.unlink()
    with pytest.raises(ConfigurationError, match="existing, readable file"):
        load(tmp_path, text)


def test_balancers_are_addresses_or_networks(tmp_path: Path) -> None:
    settings = load(tmp_path, None, "proxyProtocolAddresses=10.0.0.1;2001:db8::/32")
    assert [str(network) for network in settings.listener.proxies] == ["10.0.0.1/32", "2001:db8::/32"]
    for wrong in ("10.0.0.1/8", "balancer"):
        with pytest.raises(ConfigurationError, match="networks such as"):
            load(tmp_path, None, f"proxyProtocolAddresses={wrong}")


def test_a_flag_switches_off_what_a_shared_file_asks_for(tmp_path: Path) -> None:
    assert load(tmp_path, "duplicationEnable=true\n", "duplicationEnable=false").warnings == ()


def test_a_key_without_effect_warns_once(tmp_path: Path) -> None:
    environment = {"ORBITMQ_SEND_MESSAGE_THREAD_POOL_NUMS": "2"}
    settings = load(tmp_path, "sendMessageThreadPoolNums=1", "sendMessageThreadPoolNums=3", environment=environment)
    (warning,) = settings.warnings
    assert warning.startswith("--set sendMessageThreadPoolNums: sendMessageThreadPoolNums has no effect.")
    assert "event loop" in warning


def test_timers_have_no_farthest_time_unless_somebody_sets_one(tmp_path: Path) -> None:
    assert load(tmp_path, None).broker.timer_max_delay_sec == 0
    settings = load(tmp_path, None, "timerMaxDelaySec=259200", "recallMessageEnable=false", "timerWheelEnable=false")
    assert settings.broker.timer_max_delay_sec == 259_200
    assert not settings.broker.recall_message_enable
    assert not settings.broker.timer_wheel_enable
    assert not settings.warnings


def test_a_key_twice_in_one_file_is_the_last_one_and_a_warning(tmp_path: Path) -> None:
    settings = load(tmp_path, "fileReservedTime=1\nfileReservedTime=2\n")
    assert settings.store.file_reserved_time_hours == 2
    assert "was given before" in settings.warnings[0]


def test_consume_queue_files_hold_whole_units_as_rocketmq_rounds_them(tmp_path: Path) -> None:
    assert load(tmp_path, None, "mappedFileSizeConsumeQueue=6000001").store.mapped_file_size_consume_queue == 6000020


def test_a_list_of_log_directories_is_refused_and_not_taken_for_one_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="several directories"):
        load(tmp_path, None, "storePathCommitLog=/one,/two")


def test_a_log_that_a_file_names_is_not_taken_beside_a_data_directory_that_it_does_not(tmp_path: Path) -> None:
    """Two brokers that share the file and differ in --data would write one log."""
    foreign, own = f"storePathCommitLog={tmp_path}/log", f"storePathCommitLog={tmp_path}/data/log"
    given = Overrides(data=tmp_path / "data")
    with pytest.raises(
        ConfigurationError, match=r"line 1: storePathCommitLog = .* outside of the data directory .*/data"
    ):
        load(tmp_path, foreign, overrides=given)
    with pytest.raises(ConfigurationError, match="environment variable"):
        load(tmp_path, None, overrides=given, environment={"ORBITMQ_STORE_PATH_COMMIT_LOG": f"{tmp_path}/log"})
    assert load(tmp_path, own, overrides=given).store.store_path_commit_log == tmp_path / "data" / "log"
    assert load(tmp_path, None, foreign, overrides=given).store.store_path_commit_log == tmp_path / "log"
    both = load(tmp_path, f"storePathRootDir={tmp_path}/data\n{foreign}", overrides=Overrides())
    assert both.data == tmp_path / "data"


def test_watermarks_in_the_wrong_order(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is above"):
        load(tmp_path, None, "writeBufferHighWaterMark=10", "writeBufferLowWaterMark=20")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.conf: No such file"):
        load_settings(roles=BOTH, config=tmp_path / "missing.conf")


def test_a_file_without_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is larger than"):
        load(tmp_path, "#" * 1_048_577)


def test_comments_in_another_encoding_do_no_harm(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_bytes("# 中文\nbrokerName=gbk\n".encode("gbk"))
    settings = load_settings(roles=BOTH, config=config, overrides=Overrides(data=tmp_path))
    assert settings.broker.broker_name == "gbk"


@pytest.mark.parametrize("flag", ["flushDiskType", "=1", ""])
def test_a_flag_without_key_or_value(tmp_path: Path, flag: str) -> None:
    with pytest.raises(ConfigurationError, match="is not key=value"):
        load(tmp_path, None, flag)


def test_a_server_has_a_role(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="without a role"):
        load(tmp_path, roles=())


def test_changes_made_while_running_rank_between_file_and_environment(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "config"
    folder.mkdir(parents=True)
    (folder / "orbitmq-changes.properties").write_text("fileReservedTime=20\nmaxMessageSize=100\n", encoding="ascii")
    settings = load(tmp_path, "fileReservedTime=10\n", environment={"ORBITMQ_MAX_MESSAGE_SIZE": "200"})
    assert settings.store.file_reserved_time_hours == 20
    assert settings.store.max_message_size == 200
    assert settings.changed_while_running == {"fileReservedTime": "20", "maxMessageSize": "100"}


def test_a_start_says_which_values_come_from_changes_by_request(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "config"
    folder.mkdir(parents=True)
    kept = "fileReservedTime=20\nmaxMessageSize=100\ndeleteWhen=4\nflushIntervalCommitLog=500\n"
    (folder / "orbitmq-changes.properties").write_text(kept, encoding="ascii")
    settings = load(tmp_path, "fileReservedTime=10\ndeleteWhen=04\n", environment={"ORBITMQ_MAX_MESSAGE_SIZE": "200"})
    first, second = settings.warnings
    assert first.startswith("fileReservedTime = 20 was changed while running (kept in ")
    assert "without that it is 10 (" in first
    assert "broker.conf, line 1" in first
    assert second.startswith("maxMessageSize = 100 was changed while running and does not count: environment variable")
    assert settings.beneath_changes["flushIntervalCommitLog"] == ("500", "the default")


def test_changes_of_a_name_server_outlive_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "namesrv"
    folder.mkdir()
    (folder / "orbitmq-changes.properties").write_text("scanNotActiveBrokerInterval=7000\n", encoding="ascii")
    for roles in ({Role.NAMESERVER}, {Role.NAMESERVER, Role.BROKER}):
        settings = load_settings(roles=roles, overrides=Overrides(data=tmp_path))
        assert settings.nameserver.scan_not_active_broker_interval == 7_000
        assert settings.nameserver_changes == {"scanNotActiveBrokerInterval": "7000"}
        assert settings.changed_while_running == {}
    assert load_settings(roles={Role.BROKER}, overrides=Overrides(data=tmp_path)).nameserver_changes == {}


def test_credentials_that_are_wrong_stop_the_start(tmp_path: Path) -> None:
    flags = ['innerClientAuthenticationCredentials={"accessKey": "inner"}']
    with pytest.raises(ConfigurationError, match="innerClientAuthenticationCredentials needs accessKey"):
        load_settings(roles=[Role.BROKER], flags=flags, overrides=Overrides(data=tmp_path))


def test_a_file_of_a_proxy_that_says_something_else_stops_the_start(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=a\n")
    (tmp_path / "rmq-proxy.json").write_text('{"authenticationEnabled": true}')
    with pytest.raises(ConfigurationError, match="authenticationEnabled is true"):
        load_settings(roles=[Role.BROKER], config=config)


def test_a_guarded_name_server_needs_somebody_who_may_change_it(tmp_path: Path) -> None:
    where = Overrides(data=tmp_path)
    guarded = ["nameserverAuthenticationEnabled=true"]
    named = 'innerClientAuthenticationCredentials={"accessKey": "inner", "secretKey": "hush"}'
    for roles in ([Role.NAMESERVER], [Role.NAMESERVER, Role.BROKER]):
        with pytest.raises(ConfigurationError, match="there is no user who could change the name server"):
            load_settings(roles=roles, flags=guarded, overrides=where)
        assert load_settings(roles=roles, flags=[*guarded, named], overrides=where).access.guards_name_server
    assert load_settings(roles=[Role.BROKER], flags=guarded, overrides=where).access.guards_name_server


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("brokerRole=SLAVE", "give each slave of a group a brokerId of its own"),
        ("brokerId=1", "a master has brokerId 0"),
        ("brokerRole=SYNC_MASTER\nbrokerId=2", "a master has brokerId 0"),
        ("refuseWithoutCopies=true", "give brokerRole = SYNC_MASTER"),
        ("haMasterAddress=a:1;b:2", "a slave has one master"),
        ("brokerRole=SYNC_MASTER\ntotalReplicas=2\ninSyncReplicas=3", "have to be in this order"),
        ("haSendHeartbeatInterval=20000", "does not end a silence"),
    ],
)
def test_settings_of_replication_that_do_not_go_together(tmp_path: Path, lines: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, lines)
    assert problem in str(caught.value)


def test_a_synchronous_master_waits_for_any_slave_unless_it_counts_replicas(tmp_path: Path) -> None:
    any_slave = load(tmp_path, "brokerRole=SYNC_MASTER").replication.rule()
    assert (any_slave.needed, any_slave.needed_min) == (1, 0)
    counted = load(
        tmp_path, "brokerRole=SYNC_MASTER\ntotalReplicas=3\ninSyncReplicas=3\nminInSyncReplicas=2"
    ).replication.rule()
    assert (counted.needed, counted.needed_min) == (2, 1)
    assert load(tmp_path, "totalReplicas=3\ninSyncReplicas=3").replication.rule().needed == 0, (
        "an asynchronous one asks nobody"
    )


def test_a_member_of_a_group_has_an_engine_and_a_name_and_nothing_of_a_pair() -> None:
    engine = "replicationEngine=etcd://one,two:1/p"
    member = load_settings(roles=[Role.BROKER], flags=[engine, "replicaName=one"])
    assert (member.replication.is_member, member.store.flush_disk_type) == (True, FlushDiskType.SYNC_FLUSH)
    assert not member.store.confirms_tail
    in_memory = load_settings(roles=[Role.BROKER], flags=[engine, "replicaName=one", "replicationAck=memory"])
    assert in_memory.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    for flags, problem in (
        ([engine], "replicaName is not"),
        (["replicaName=one"], "replicationEngine is not set"),
        ([engine, "replicaName=one", "brokerRole=SLAVE", "brokerId=1"], "brokerRole, brokerId: these are of a master"),
        ([engine, "replicaName=one", "flushDiskType=ASYNC_FLUSH"], "replicationAck = disk"),
        ([engine, "replicaName=one", "minInSyncReplicas=2"], "minInSyncReplicas"),
        (["enableDLegerCommitLog=true"], "set replicationEngine and replicaName"),
        (["enableControllerMode=true"], "set replicationEngine and replicaName"),
        (["replicationEngine=etcd://me:secret@one"], "its own file"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            load_settings(roles=[Role.BROKER], flags=flags)
