// Counts words exactly once: every line of "lines" is split, and each word's new count goes to "counts".
// Arguments: the brokers, the folder of the state.

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;

public class WordCount {
  public static void main(String[] arguments) {
    var properties = new Properties();
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
    properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every count goes out: 1, 2, 3, …
    properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);

    var builder = new StreamsBuilder();
    KStream<String, String> lines = builder.stream("lines");
    lines
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.as("words"))
        .count()
        .toStream()
        .mapValues(count -> count.toString())
        .to("counts");

    var streams = new KafkaStreams(builder.build(), properties);
    streams.setUncaughtExceptionHandler(
        failure -> {
          System.err.println("a thread is replaced: " + failure);
          return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
    streams.start();
    System.out.println("started");
  }
}
