package interop;

/** Runs programs as they are, by the names of their classes, one after another in this JVM. The last one may go on until it is killed. */
public final class Programs {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) new String[0]);
        }
    }
}
