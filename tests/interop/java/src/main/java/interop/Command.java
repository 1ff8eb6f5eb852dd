package interop;

import java.io.UnsupportedEncodingException;
import java.net.URLDecoder;
import java.util.LinkedHashMap;
import java.util.Map;

/** One line of standard input, written like the end of a URL: {@code name?key=value&key=value}, percent-encoded UTF-8. */
final class Command {
    final String name;
    private final Map<String, String> arguments = new LinkedHashMap<>();

    Command(String line) throws UnsupportedEncodingException {
        int mark = line.indexOf('?');
        name = mark < 0 ? line : line.substring(0, mark);
        if (mark >= 0) {
            for (String pair : line.substring(mark + 1).split("&")) {
                int equals = pair.indexOf('=');
                arguments.put(URLDecoder.decode(pair.substring(0, equals), "UTF-8"),
                    URLDecoder.decode(pair.substring(equals + 1), "UTF-8"));
            }
        }
    }

    String text(String key) {
        String value = arguments.get(key);
        if (value == null) {
            throw new IllegalArgumentException("command " + name + " needs " + key);
        }
        return value;
    }

    String text(String key, String otherwise) {
        return arguments.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return arguments.containsKey(key) ? Integer.parseInt(arguments.get(key)) : otherwise;
    }
}
