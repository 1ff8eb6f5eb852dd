package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

import org.apache.spark.sql.DataFrameReader;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * Spark with Delta's own package reads tables: the judge of what delta-rs and orbitmq wrote.
 *
 * usage: DeltaReader, then commands on standard input:
 * read?table=&amp;columns=&amp;version=   the columns (expressions of Spark SQL, joined by a newline) of every row ("row" events, as JSON);
 *                                the newest version where none is named
 * close
 */
public final class DeltaReader {
    public static void main(String[] args) throws Exception {
        SparkSession spark = SparkSession.builder()
            .master("local[1]")
            .config("spark.ui.enabled", false)
            .config("spark.log.level", "WARN")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", 1)
            .config("spark.databricks.delta.snapshotPartitions", 1)
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            .getOrCreate();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        new JsonLine("ready").put("spark", spark.version()).print();
        for (String line = in.readLine(); line != null && !line.equals("close"); line = in.readLine()) {
            try {
                read(spark, new Command(line));
                new JsonLine("done").put("command", line).print();
            } catch (Exception e) {
                new JsonLine("failed").put("command", line).put("error", e.toString()).print();
            }
        }
        new JsonLine("closed").print();
        spark.stop();
    }

    private static void read(SparkSession spark, Command command) {
        DataFrameReader reader = spark.read().format("delta");
        String version = command.text("version", "");
        if (!version.isEmpty()) {
            reader = reader.option("versionAsOf", version);
        }
        Dataset<Row> table = reader.load(command.text("table"));
        for (String row : table.selectExpr(command.text("columns").split("\n")).toJSON().collectAsList()) {
            new JsonLine("row").put("json", row).print();
        }
    }

    private DeltaReader() {
    }
}
