// Runs Kafka's command-line tools in one process: a line on standard input is a tool's class, what it finds on its own
// standard input, in base64, and its arguments, separated by tabs. After each comes "exit CODE" and what it has written,
// as one line of base64.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class Tools {
  private static final class Ended extends RuntimeException {
    Ended() {
      super("ended", null, false, false);
    }
  }

  private static Integer code;

  // What a tool does after it has ended, as it catches everything, is not seen.
  private static void end(int codeOfExit) {
    if (code == null) {
      code = codeOfExit;
      write(new PrintStream(OutputStream.nullOutputStream()));
    }
    throw new Ended();
  }

  private static void write(PrintStream stream) {
    System.setOut(stream);
    System.setErr(stream);
  }

  public static void main(String[] arguments) throws Exception {
    var out = System.out;
    Exit.setExitProcedure((codeOfExit, message) -> end(codeOfExit));
    Exit.setHaltProcedure((codeOfExit, message) -> end(codeOfExit));
    List<Runnable> atItsEnd = new ArrayList<>();
    Exit.setShutdownHookAdder((name, hook) -> atItsEnd.add(hook));
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] parts = line.split("\t", -1);
      var written = new ByteArrayOutputStream();
      var capture = new PrintStream(written, true, StandardCharsets.UTF_8);
      code = null;
      write(capture);
      System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(parts[1])));
      int ended = run(parts[0], Arrays.copyOfRange(parts, 2, parts.length), capture);
      atItsEnd.forEach(Runnable::run);
      atItsEnd.clear();
      out.println("exit " + ended + " " + Base64.getEncoder().encodeToString(written.toByteArray()));
      out.flush();
    }
  }

  private static int run(String tool, String[] arguments, PrintStream capture) {
    Throwable failure = null;
    try {
      Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
    } catch (InvocationTargetException thrown) {
      failure = thrown.getCause();
    } catch (ReflectiveOperationException thrown) {
      failure = thrown;
    }
    if (code != null) {
      return code;
    }
    if (failure != null) {
      capture.println(failure);
    }
    return failure == null ? 0 : 1;
  }
}
