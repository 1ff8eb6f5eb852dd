"""The table of users as a server opens it, and RocketMQ's files of accounts."""
