package interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Who the client under test is: ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY of the environment; without them it signs nothing. */
final class Access {
    private Access() {
    }

    static RPCHook hook() {
        String accessKey = System.getenv("ROCKETMQ_ACCESS_KEY");
        return accessKey == null ? null
            : new AclClientRPCHook(new SessionCredentials(accessKey, System.getenv("ROCKETMQ_SECRET_KEY")));
    }
}
