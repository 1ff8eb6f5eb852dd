package interop;

import java.util.Map;

/** One event on standard output: a JSON object on a line of its own. Only strings, whole numbers, booleans and string maps. */
final class JsonLine {
    private final StringBuilder text = new StringBuilder(256);

    JsonLine(String event) {
        text.append("{\"event\":");
        quote(event);
    }

    JsonLine put(String name, String value) {
        name(name);
        if (value == null) {
            text.append("null");
        } else {
            quote(value);
        }
        return this;
    }

    JsonLine put(String name, long value) {
        name(name);
        text.append(value);
        return this;
    }

    JsonLine put(String name, boolean value) {
        name(name);
        text.append(value);
        return this;
    }

    JsonLine put(String name, Map<String, String> values) {
        name(name);
        text.append('{');
        String separator = "";
        for (Map.Entry<String, String> entry : values.entrySet()) {
            text.append(separator);
            quote(entry.getKey());
            text.append(':');
            quote(String.valueOf(entry.getValue()));
            separator = ",";
        }
        text.append('}');
        return this;
    }

    void print() {
        text.append('}');
        synchronized (System.out) {
            System.out.println(text);
            System.out.flush();
        }
    }

    private void name(String name) {
        text.append(',');
        quote(name);
        text.append(':');
    }

    private void quote(String value) {
        text.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }
}
