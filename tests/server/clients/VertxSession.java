import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.http.HttpClient;
import io.vertx.core.http.HttpClientOptions;
import io.vertx.core.http.HttpClientRequest;
import io.vertx.core.http.HttpClientResponse;
import io.vertx.core.http.HttpMethod;
import io.vertx.core.http.HttpVersion;
import io.vertx.core.parsetools.RecordParser;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A session over one HTTP/2 connection with prior knowledge, as ksqlDB's Java client has it. Prints what it saw. */
public class VertxSession {
  private static final String END = "(end)";
  private final HttpClient client;

  private VertxSession(HttpClient client) {
    this.client = client;
  }

  public static void main(String[] arguments) throws Exception {
    Vertx vertx = Vertx.vertx();
    try {
      HttpClientOptions options = new HttpClientOptions()
          .setProtocolVersion(HttpVersion.HTTP_2)
          .setHttp2ClearTextUpgrade(false)
          .setHttp2MaxPoolSize(1)
          .setDefaultHost("127.0.0.1")
          .setDefaultPort(Integer.parseInt(arguments[0]));
      new VertxSession(vertx.createHttpClient(options)).run();
    } finally {
      vertx.close();
    }
  }

  private void run() throws Exception {
    String ddl = "CREATE STREAM seen (id INT KEY, v STRING) WITH (kafka_topic='seen', value_format='JSON', partitions=1);"
        + " CREATE TABLE counts AS SELECT id, COUNT(*) AS n FROM seen GROUP BY id;";
    print("ksql", post("/ksql", "{\"ksql\": \"" + ddl + "\"}").all());

    Exchange push = post("/query-stream", "{\"sql\": \"SELECT id, v FROM seen EMIT CHANGES;\","
        + " \"properties\": {\"auto.offset.reset\": \"earliest\"}}");
    String header = push.take();
    print("push header", header);

    Exchange inserts = open("/inserts-stream");
    inserts.write("{\"target\": \"SEEN\"}\n");
    for (int number = 0; number < 3; number++) {
      inserts.write("{\"ID\": " + number % 2 + ", \"V\": \"row " + number + "\"}\n");
      print("acknowledgement", inserts.take());  // before the next row leaves: full duplex
      print("push row", push.take());
    }
    inserts.write("{\"ID\": \"no number\"}\n");
    print("acknowledgement", inserts.take().contains("\"status\":\"error\"") ? "error" : "ok");
    inserts.request.end();
    print("inserts end", inserts.take());

    String queryId = header.replaceAll(".*\"queryId\":\"([^\"]+)\".*", "$1");
    print("close-query", post("/close-query", "{\"queryId\": \"" + queryId + "\"}").all());
    print("push end", push.take());

    Exchange left = post("/query-stream", "{\"sql\": \"SELECT id FROM seen EMIT CHANGES;\"}");
    left.take();
    left.request.reset();  // a client that goes away in the middle

    String pull = "{\"sql\": \"SELECT n FROM counts WHERE id = 0;\"}";
    String found = post("/query-stream", pull).all();
    for (int attempt = 0; attempt < 100 && !found.endsWith("[2]"); attempt++) {
      Thread.sleep(50);
      found = post("/query-stream", pull).all();
    }
    print("pull", found.replaceAll("\"queryId\":\"[^\"]*\"", "\"queryId\":…"));
    print("refusal", post("/ksql", "{\"ksql\": \"SELECT 1;\"}").all().replaceAll("(error_code\":\\d+).*", "$1"));
  }

  private static void print(String what, String text) {
    System.out.println(what + ": " + text);
  }

  private Exchange post(String path, String body) throws Exception {
    Exchange exchange = new Exchange(request(path));
    exchange.request.end(body);
    return exchange;
  }

  private Exchange open(String path) throws Exception {
    Exchange exchange = new Exchange(request(path));
    exchange.request.setChunked(true);
    return exchange;
  }

  private HttpClientRequest request(String path) throws Exception {
    CompletableFuture<HttpClientRequest> made = client.request(HttpMethod.POST, path).toCompletionStage().toCompletableFuture();
    HttpClientRequest request = made.get(10, TimeUnit.SECONDS);
    request.putHeader("content-type", "application/json");
    return request;
  }

  /** One request and the lines of its answer. */
  private static final class Exchange {
    final HttpClientRequest request;
    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();

    Exchange(HttpClientRequest request) {
      this.request = request;
      RecordParser parser = RecordParser.newDelimited("\n", line -> lines.add(line.toString()));
      request.response().onSuccess((HttpClientResponse response) -> {
        if (response.version() != HttpVersion.HTTP_2) {
          lines.add("not HTTP/2");
        }
        response.handler((Buffer data) -> parser.handle(data));
        response.endHandler(nothing -> {
          parser.handle(Buffer.buffer("\n"));
          lines.add(END);
        });
      });
    }

    void write(String text) {
      request.write(text);
    }

    /** The next line; waits for it. */
    String take() throws InterruptedException {
      String line = "";
      while (line != null && line.isEmpty()) {
        line = lines.poll(10, TimeUnit.SECONDS);
      }
      return line == null ? "(nothing)" : line;
    }

    /** The last line. */
    String all() throws InterruptedException {
      String last = END;
      for (String line = take(); !line.equals(END) && !line.equals("(nothing)"); line = take()) {
        last = line;
      }
      return last;
    }
  }
}
