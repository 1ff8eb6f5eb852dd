package interop;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.producer.Producer;

/** What later gRPC clients have and earlier ones lack, by name: the driver is built for all of them. */
final class GrpcSince {
    private GrpcSince() {
    }

    /** Calls a method of a public interface. */
    static Object call(Class<?> type, Object target, String method, Object... arguments) {
        for (Method one : type.getMethods()) {
            if (one.getName().equals(method) && one.getParameterCount() == arguments.length) {
                try {
                    return one.invoke(target, arguments);
                } catch (IllegalAccessException | InvocationTargetException e) {
                    throw new IllegalStateException(e.getCause() == null ? e : e.getCause());
                }
            }
        }
        throw new UnsupportedOperationException("this client has no " + method);
    }

    /** The same; {@code otherwise} where the client has no such method. */
    static Object callOr(Object otherwise, Class<?> type, Object target, String method, Object... arguments) {
        try {
            return call(type, target, method, arguments);
        } catch (UnsupportedOperationException e) {
            return otherwise;
        }
    }

    /** The id of the message that was taken back. */
    static String recalled(Producer producer, String topic, String handle) throws ClientException {
        try {
            Object receipt = call(Producer.class, producer, "recallMessage", topic, handle);
            return call(receipt.getClass().getInterfaces()[0], receipt, "getMessageId").toString();
        } catch (IllegalStateException e) {
            if (e.getCause() instanceof ClientException) {
                throw (ClientException) e.getCause();
            }
            throw e;
        }
    }
}
