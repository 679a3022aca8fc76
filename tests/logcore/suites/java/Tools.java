// Runs Kafka's command-line tools in one process: a line on standard input is a tool's class and its arguments,
// separated by tabs. After each comes "exit CODE" and what it has written, as one line of base64.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

public class Tools {
  private static final class Ended extends RuntimeException {
    final int code;

    Ended(int code) {
      super("exit " + code, null, false, false);
      this.code = code;
    }
  }

  public static void main(String[] arguments) throws Exception {
    var out = System.out;
    Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
    Exit.setHaltProcedure((code, message) -> { throw new Ended(code); });
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] parts = line.split("\t", -1);
      var written = new ByteArrayOutputStream();
      var capture = new PrintStream(written, true, StandardCharsets.UTF_8);
      System.setOut(capture);
      System.setErr(capture);
      int code = run(parts[0], Arrays.copyOfRange(parts, 1, parts.length), capture);
      out.println("exit " + code + " " + Base64.getEncoder().encodeToString(written.toByteArray()));
      out.flush();
    }
  }

  private static int run(String tool, String[] arguments, PrintStream capture) {
    try {
      Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
      return 0;
    } catch (InvocationTargetException failure) {
      if (failure.getCause() instanceof Ended ended) {
        return ended.code;
      }
      capture.println(failure.getCause());
      return 1;
    } catch (ReflectiveOperationException failure) {
      capture.println(failure);
      return 1;
    }
  }
}
