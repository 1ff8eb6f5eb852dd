"""Fuzzer of the bodies about users and policies. Run: `python tests/fuzz/fuzz_policies.py --count 1000000 --seed 7`.

For every input: it is refused with ValueError, or read to something that is written and read again as the same, and that decides about
anybody anywhere. What is said about a user never holds its password.
"""

from __future__ import annotations

import sys

from mutations import run

from orbitmq.access.evaluation import Permissions
from orbitmq.access.needed import Needed
from orbitmq.access.policy_bodies import acl_info, entry_text, read_acl, read_user, user_info
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.protocol.remoting.requests import Action, ResourceType

SECRET = "hush4711"
TOKENS = [
    b'"Allow"', b'"deny"', b'"All"', b'"Any"', b'"Pub"', b'"Topic:a*"', b'"Topic:*"', b'"*"', b'"Any:a"', b'"Topic:a*b"', b'"Namespace:n"',
    b'"10.0.0.0/8"', b'"::ffff:10.0.0.1/97"', b'"1.2.3.4/33"', b'"fe80::1%eth0"', b'"Default"', b'"Super"', b'"disable"', b"null", b"[]",
    b"{}", b",", b":", b'"', b'{"$ref":"$.policies[0]"}', b'"userType"', b'"password"', b'"\\ud800"', b"'x'", b"1e9",
]  # fmt: skip
CORPUS = [
    b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:a","sourceIps":["10.0.0.1","::1"]},'
    b'{"actions":["All"],"decision":"Deny","resource":"Group:g*"}],"policyType":"Custom"},'
    b'{"entries":[{"actions":["Get"],"decision":"Allow","resource":"*"}],"policyType":"Default"}],"subject":"User:u"}',
    b'{"password":"%b","userStatus":"enable","userType":"Normal","username":"u"}' % SECRET.encode(),
]
NEEDS = [Needed(type_, name, frozenset(Action)) for type_ in ResourceType for name in ("a", "g1", None)]


def parse(data: bytes) -> str:
    read = []
    try:
        change = read_user(data)
    except ValueError as error:
        if SECRET in str(error):
            raise RuntimeError("a password is quoted") from error
    else:
        assert SECRET not in repr(change)
        user = User("u", change.password or "x", change.type or UserType.NORMAL, change.status or UserStatus.ENABLED)
        again = read_user(user_info(user, tell_password=True).encode())
        assert (again.password, again.type, again.status) == (user.password, user.type, user.status)
        read.append("user")
    try:
        acl = read_acl(data, "u")
    except ValueError:
        pass
    else:
        assert read_acl(acl_info(acl).encode(), "u") == acl
        for need in NEEDS:
            for address in ("10.0.0.1", "::1", ""):
                judgement = Permissions(acl).judge(need, address)
                assert judgement.entry is None or entry_text(judgement.entry)
        read.append("policies")
    if not read:
        raise ValueError("refused")
    return "read " + " and ".join(read)


if __name__ == "__main__":
    sys.exit(run("policies", CORPUS, parse, TOKENS, refusals=(ValueError,)))
