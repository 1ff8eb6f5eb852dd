"""Commands about users and policies."""
