"""Access control as RocketMQ 4 has it: accounts with a secret key and permissions, kept in YAML files that the operator writes.

    addresses   patterns of client addresses that are let in without asking
    accounts    what stands in a file, read into values
    yaml_text   the text of a file; the only module that needs PyYAML
    table       the accounts of all files

The files themselves are with whoever reads them: `orbitmq.server.access.plain_files`.
"""
