// What share groups promise, asked of whatever brokers are named: the same answers of Apache Kafka and of us.
// Arguments: the brokers, and which part: "cases", some of their names, "before" (a crash), "after" (it). Prints a line
// for each case.

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidRecordStateException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.consumer.group.ShareGroupCommand;

public class Shares {
  static String brokers;
  static Admin admin;
  static int failures = 0;

  interface Case {
    void run(String name) throws Exception;
  }

  static final class Worker implements AutoCloseable {
    final KafkaShareConsumer<String, String> consumer;

    Worker(String group, String topic, String mode, Map<String, Object> more) {
      var properties = new Properties();
      properties.put("bootstrap.servers", brokers);
      properties.put("group.id", group);
      properties.put("key.deserializer", StringDeserializer.class);
      properties.put("value.deserializer", StringDeserializer.class);
      properties.put("share.acknowledgement.mode", mode);
      properties.putAll(more);
      consumer = new KafkaShareConsumer<>(properties);
      consumer.subscribe(List.of(topic));
    }

    List<ConsumerRecord<String, String>> poll(long withinMs) {
      var found = new ArrayList<ConsumerRecord<String, String>>();
      long until = System.currentTimeMillis() + withinMs;
      do {
        for (var each : consumer.poll(Duration.ofMillis(100))) found.add(each);
      } while (found.isEmpty() && System.currentTimeMillis() < until);
      return found;
    }

    List<String> values(long withinMs) {
      return poll(withinMs).stream().map(ConsumerRecord::value).collect(Collectors.toList());
    }

    List<String> until(int count, long withinMs) {
      var found = new ArrayList<String>();
      long until = System.currentTimeMillis() + withinMs;
      while (found.size() < count && System.currentTimeMillis() < until) {
        for (var each : consumer.poll(Duration.ofMillis(100))) found.add(each.value());
      }
      return found;
    }

    @Override
    public void close() {
      consumer.close(Duration.ofSeconds(10));
    }
  }

  static Worker implicit(String group) {
    return new Worker(group, group, "implicit", Map.of());
  }

  static Worker explicit(String group) {
    return new Worker(group, group, "explicit", Map.of());
  }

  static void topic(String name, int partitions) throws Exception {
    admin.createTopics(List.of(new NewTopic(name, partitions, (short) -1))).all().get();
  }

  static void set(String group, String... settings) throws Exception {
    var changes = new ArrayList<AlterConfigOp>();
    for (int at = 0; at < settings.length; at += 2) {
      changes.add(new AlterConfigOp(new ConfigEntry(settings[at], settings[at + 1]), AlterConfigOp.OpType.SET));
    }
    admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes)).all().get();
  }

  /** A topic of the group's name, which it reads from the beginning, with a short lock. */
  static void prepare(String group, int partitions, String... more) throws Exception {
    topic(group, partitions);
    var settings = new ArrayList<String>(List.of("share.auto.offset.reset", "earliest"));
    Collections.addAll(settings, more);
    set(group, settings.toArray(String[]::new));
  }

  static KafkaProducer<String, String> producer(Map<String, Object> more) {
    var properties = new Properties();
    properties.put("bootstrap.servers", brokers);
    properties.put("key.serializer", StringSerializer.class);
    properties.put("value.serializer", StringSerializer.class);
    properties.put("linger.ms", 20);
    properties.putAll(more);
    return new KafkaProducer<>(properties);
  }

  /** One batch per call and partition. */
  static void send(String topic, int partition, int from, int to) {
    try (var producer = producer(Map.of())) {
      for (int each = from; each < to; each++) {
        producer.send(new ProducerRecord<>(topic, partition, "k", "v" + each));
      }
    }
  }

  static List<String> named(int from, int to) {
    return IntStream.range(from, to).mapToObj(each -> "v" + each).collect(Collectors.toList());
  }

  static void equal(Object wanted, Object found) {
    if (!wanted.equals(found)) throw new AssertionError("wanted " + wanted + ", found " + found);
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  static void await(BooleanSupplier holds, long withinMs, String what) throws Exception {
    long until = System.currentTimeMillis() + withinMs;
    while (!holds.getAsBoolean()) {
      check(System.currentTimeMillis() < until, what);
      Thread.sleep(50);
    }
  }

  // Cases

  static void whatIsPolledIsAcceptedByTheNextPoll(String name) throws Exception {
    prepare(name, 1);
    send(name, 0, 0, 100);
    try (var worker = implicit(name)) {
      equal(named(0, 100), worker.until(100, 20_000));
      equal(List.of(), worker.values(500));
    }
    try (var worker = implicit(name)) {
      equal(List.of(), worker.values(1_500));
      send(name, 0, 100, 103);
      equal(named(100, 103), worker.until(3, 10_000));
    }
  }

  static void recordsAreAcceptedReleasedAndRejected(String name) throws Exception {
    prepare(name, 1);
    send(name, 0, 0, 4);
    try (var worker = explicit(name)) {
      var found = worker.poll(20_000);
      equal(named(0, 4), found.stream().map(ConsumerRecord::value).collect(Collectors.toList()));
      for (var each : found) equal((short) 1, each.deliveryCount().get());
      worker.consumer.acknowledge(found.get(0), AcknowledgeType.ACCEPT);
      worker.consumer.acknowledge(found.get(1), AcknowledgeType.RELEASE);
      worker.consumer.acknowledge(found.get(2), AcknowledgeType.REJECT);
      worker.consumer.acknowledge(found.get(3), AcknowledgeType.RELEASE);
      for (var result : worker.consumer.commitSync().values()) check(result.isEmpty(), "refused: " + result);
      var again = new ArrayList<ConsumerRecord<String, String>>();
      await(
          () -> {
            for (var each : worker.consumer.poll(Duration.ofMillis(100))) {
              again.add(each);
              worker.consumer.acknowledge(each);
            }
            return again.size() >= 2;
          },
          10_000,
          "released records come again");
      equal(List.of("v1", "v3"), again.stream().map(ConsumerRecord::value).collect(Collectors.toList()));
      for (var each : again) equal((short) 2, each.deliveryCount().get());
      worker.consumer.commitSync();
      equal(List.of(), worker.values(500));
    }
  }

  static void aRecordIsDeliveredFiveTimes(String name) throws Exception {
    prepare(name, 1);
    send(name, 0, 0, 1);
    try (var worker = explicit(name)) {
      for (int time = 1; time <= 5; time++) {
        var found = worker.poll(20_000);
        equal(1, found.size());
        equal((short) time, found.get(0).deliveryCount().get());
        worker.consumer.acknowledge(found.get(0), AcknowledgeType.RELEASE);
        worker.consumer.commitSync();
      }
      equal(List.of(), worker.values(1_000));
      send(name, 0, 1, 2);
      equal(List.of("v1"), worker.values(10_000));
    }
  }

  static void whatIsHeldForTooLongIsDeliveredToAnother(String name) throws Exception {
    prepare(name, 1, "share.record.lock.duration.ms", "1500");
    send(name, 0, 0, 2);
    try (var slow = explicit(name);
        var other = explicit(name)) {
      var held = slow.poll(20_000);
      equal(2, held.size());
      long begun = System.currentTimeMillis();
      var found = other.poll(20_000);
      check(System.currentTimeMillis() - begun > 500, "the lock holds for a while");
      equal(List.of("v0", "v1"), found.stream().map(ConsumerRecord::value).collect(Collectors.toList()));
      equal((short) 2, found.get(0).deliveryCount().get());
      held.forEach(each -> slow.consumer.acknowledge(each));
      for (var result : slow.consumer.commitSync().values()) {
        check(result.isPresent() && result.get() instanceof InvalidRecordStateException, "not refused: " + result);
      }
      found.forEach(each -> other.consumer.acknowledge(each));
      for (var result : other.consumer.commitSync().values()) check(result.isEmpty(), "refused: " + result);
    }
  }

  static void aLockCanBeRenewed(String name) throws Exception {
    prepare(name, 1, "share.record.lock.duration.ms", "2000");
    send(name, 0, 0, 1);
    try (var owner = explicit(name);
        var other = explicit(name)) {
      var held = owner.poll(20_000);
      equal(1, held.size());
      var taken = new ArrayList<String>();
      for (int time = 0; time < 4; time++) {
        owner.consumer.acknowledge(held.get(0), AcknowledgeType.RENEW);
        for (var result : owner.consumer.commitSync().values()) check(result.isEmpty(), "refused: " + result);
        taken.addAll(other.values(900));
        held = owner.poll(1_000); // what was renewed is given once more
        equal(1, held.size());
      }
      equal(List.of(), taken);
      owner.consumer.acknowledge(held.get(0), AcknowledgeType.ACCEPT);
      for (var result : owner.consumer.commitSync().values()) check(result.isEmpty(), "refused: " + result);
      equal(List.of(), other.values(2_500));
    }
  }

  static void consumersShareAPartition(String name) throws Exception {
    prepare(name, 1);
    together(name, 2, 1, 300, 30);
  }

  static void thereAreMoreConsumersThanPartitions(String name) throws Exception {
    prepare(name, 2);
    together(name, 5, 2, 600, 20);
  }

  /** Each record is delivered once, and each consumer gets some. */
  static void together(String name, int workers, int partitions, int count, int perBatch) throws Exception {
    var found = new ConcurrentHashMap<String, Integer>();
    var each = new ConcurrentHashMap<Integer, Integer>();
    var pool = Executors.newFixedThreadPool(workers);
    Set<Integer> ready = ConcurrentHashMap.newKeySet();
    var running = new ArrayList<Future<?>>();
    for (int number = 0; number < workers; number++) {
      int own = number;
      running.add(
          pool.submit(
              () -> {
                try (var worker = new Worker(name, name, "implicit", Map.of("max.poll.records", 10))) {
                  long until = System.currentTimeMillis() + 60_000;
                  while (found.size() < count && System.currentTimeMillis() < until) {
                    for (var record : worker.consumer.poll(Duration.ofMillis(100))) {
                      found.merge(record.value(), 1, Integer::sum);
                      each.merge(own, 1, Integer::sum);
                      Thread.sleep(3); // the work
                    }
                    ready.add(own);
                  }
                  worker.consumer.commitSync();
                }
                return null;
              }));
    }
    await(() -> ready.size() == workers, 30_000, "all consumers poll");
    for (int from = 0; from < count; from += perBatch) {
      send(name, (from / perBatch) % partitions, from, from + perBatch);
      Thread.sleep(20);
    }
    for (var one : running) one.get();
    pool.shutdown();
    equal(count, found.size());
    check(found.values().stream().allMatch(times -> times == 1), "some were delivered twice: " + found);
    check(each.size() > 1, "one consumer got everything");
  }

  static void abortedRecordsAreNotDelivered(String name) throws Exception {
    prepare(name, 1, "share.isolation.level", "read_committed");
    Map<String, Object> transactional = Map.of("transactional.id", name);
    try (var producer = producer(transactional)) {
      producer.initTransactions();
      for (int transaction = 0; transaction < 4; transaction++) {
        producer.beginTransaction();
        for (int number = 0; number < 5; number++) {
          producer.send(new ProducerRecord<>(name, 0, "k", "v" + (5 * transaction + number)));
        }
        producer.flush();
        if (transaction % 2 == 0) producer.abortTransaction();
        else producer.commitTransaction();
      }
      var wanted = new ArrayList<>(named(5, 10));
      wanted.addAll(named(15, 20));
      try (var worker = implicit(name)) {
        equal(wanted, worker.until(10, 20_000));
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(name, 0, "k", "open"));
        producer.flush();
        equal(List.of(), worker.values(1_000));
        producer.commitTransaction();
        equal(List.of("open"), worker.until(1, 10_000));
      }
    }
  }

  static void abortedRecordsAreDeliveredToWhoReadsAll(String name) throws Exception {
    prepare(name, 1);
    try (var producer = producer(Map.of("transactional.id", name))) {
      producer.initTransactions();
      producer.beginTransaction();
      producer.send(new ProducerRecord<>(name, 0, "k", "aborted"));
      producer.flush();
      producer.abortTransaction();
    }
    try (var worker = implicit(name)) {
      equal(List.of("aborted"), worker.until(1, 20_000));
    }
  }

  static void noMoreThanTheLimitIsAcquired(String name) throws Exception {
    prepare(name, 1);
    send(name, 0, 0, 10);
    Map<String, Object> few = Map.of("max.poll.records", 3, "share.acquire.mode", "record_limit");
    try (var first = new Worker(name, name, "explicit", few);
        var second = new Worker(name, name, "explicit", few)) {
      equal(named(0, 3), first.values(20_000));
      var found = second.values(20_000); // the first may have asked for more meanwhile
      check(List.of(named(3, 6), named(6, 9)).contains(found), "found " + found);
    }
  }

  static void aGroupBeginsAtTheEndUnlessItSaysOtherwise(String name) throws Exception {
    topic(name, 1);
    send(name, 0, 0, 5);
    try (var worker = implicit(name)) {
      var found = new ArrayList<String>();
      long until = System.currentTimeMillis() + 20_000;
      for (int next = 5; found.isEmpty() && System.currentTimeMillis() < until; next++) {
        send(name, 0, next, next + 1);
        found.addAll(worker.values(300));
      }
      check(!found.isEmpty() && Collections.disjoint(found, named(0, 5)), "found " + found);
    }
  }

  static void aGroupBeginsAtATime(String name) throws Exception {
    topic(name, 1);
    set(name, "share.auto.offset.reset", "by_duration:PT1H");
    long now = System.currentTimeMillis();
    try (var producer = producer(Map.of())) {
      producer.send(new ProducerRecord<>(name, 0, now - 7_200_000, "k", "old"));
      producer.send(new ProducerRecord<>(name, 0, now - 60_000, "k", "new"));
    }
    try (var worker = implicit(name)) {
      equal(List.of("new"), worker.until(1, 20_000));
    }
  }

  static void whatAConsumerThatLeavesHadIsDeliveredAtOnce(String name) throws Exception {
    prepare(name, 1);
    send(name, 0, 0, 3);
    try (var other = explicit(name)) {
      try (var leaving = explicit(name)) {
        equal(3, leaving.poll(20_000).size() + other.poll(100).size());
      }
      long begun = System.currentTimeMillis();
      equal(named(0, 3), other.until(3, 20_000));
      check(System.currentTimeMillis() - begun < 10_000, "it took longer than the lock");
    }
  }

  static void whoAsksHearsOfAcknowledgements(String name) throws Exception {
    prepare(name, 1);
    send(name, 0, 0, 3);
    try (var worker = explicit(name)) {
      var heard = new HashSet<Long>();
      worker.consumer.setAcknowledgementCommitCallback(
          (offsets, failure) -> {
            check(failure == null, "failed: " + failure);
            offsets.values().forEach(heard::addAll);
          });
      for (var each : worker.poll(20_000)) worker.consumer.acknowledge(each);
      worker.consumer.commitAsync();
      await(
          () -> {
            worker.consumer.poll(Duration.ofMillis(50));
            return heard.size() == 3;
          },
          10_000,
          "the callback is called");
    }
  }

  static void manyRecordsAreEachDeliveredOnce(String name) throws Exception {
    prepare(name, 3);
    for (int partition = 0; partition < 3; partition++) send(name, partition, 2_000 * partition, 2_000 * (partition + 1));
    try (var first = implicit(name);
        var second = implicit(name)) {
      var found = new ArrayList<String>();
      await(
          () -> {
            for (var worker : List.of(first, second)) {
              for (var each : worker.consumer.poll(Duration.ofMillis(50))) found.add(each.value());
            }
            return found.size() >= 6_000;
          },
          60_000,
          "all are delivered");
      equal(6_000, found.size());
      equal(6_000, new HashSet<>(found).size());
    }
  }

  // Tools

  static final class Ended extends Error {}

  static String tool(String... arguments) {
    var written = new ByteArrayOutputStream();
    var out = System.out;
    var error = System.err;
    System.setOut(new PrintStream(written, true));
    System.setErr(new PrintStream(written, true));
    Exit.setExitProcedure(
        (code, message) -> {
          if (message != null) System.out.println(message);
          throw new Ended();
        });
    try {
      var all = new ArrayList<>(List.of("--bootstrap-server", brokers));
      Collections.addAll(all, arguments);
      ShareGroupCommand.main(all.toArray(String[]::new));
    } catch (Ended ended) {
      // it has said what it had to say
    } finally {
      Exit.resetExitProcedure();
      System.setOut(out);
      System.setErr(error);
    }
    return written.toString(StandardCharsets.UTF_8).replaceAll("[ \t]+", " ").trim();
  }

  static void has(String text, String... parts) {
    for (var part : parts) check(text.contains(part), "\"" + part + "\" is not in: " + text);
  }

  static void theToolListsDescribesResetsAndDeletes(String name) throws Exception {
    prepare(name, 1);
    send(name, 0, 0, 10);
    try (var worker = implicit(name)) {
      equal(10, worker.until(10, 20_000).size());
      worker.consumer.commitSync();
      has(tool("--list"), name);
      has(tool("--list", "--state"), name + " Stable");
      has(tool("--describe", "--group", name, "--state"), name, "Stable 1");
      has(tool("--describe", "--group", name, "--members"), name, "0");
      has(tool("--reset-offsets", "--group", name, "--topic", name, "--to-earliest", "--execute"), "not empty");
      has(tool("--delete", "--group", name), "is not EMPTY");
    }
    await(() -> tool("--list", "--state").contains(name + " Empty"), 20_000, "the group is empty");
    var described = tool("--describe", "--group", name, "--offsets");
    check(described.matches("(?s).*" + name + " " + name + " 0 \\d+ 0"), "no lag in: " + described);
    has(tool("--reset-offsets", "--group", name, "--topic", name, "--to-earliest", "--execute"), name + " 0 0");
    has(tool("--describe", "--group", name, "--offsets"), name + " " + name + " 0 0");
    try (var worker = implicit(name)) {
      equal(named(0, 10), worker.until(10, 20_000));
    }
    await(() -> tool("--list", "--state").contains(name + " Empty"), 20_000, "the group is empty");
    has(tool("--delete-offsets", "--group", name, "--topic", name), name);
    check(!tool("--describe", "--group", name, "--offsets").contains(name + " " + name + " 0"), "still there");
    has(tool("--delete", "--group", name), "success");
    check(!tool("--list").contains(name), "the group is still there");
  }

  static int assigned(String group) {
    try {
      var described = admin.describeShareGroups(List.of(group)).all().get().get(group);
      return described.members().stream().mapToInt(each -> each.assignment().topicPartitions().size()).sum();
    } catch (java.util.concurrent.ExecutionException | InterruptedException notYet) {
      return -1;
    }
  }

  static void groupsAreOfOneKind(String name) throws Exception {
    prepare(name, 1);
    try (var worker = implicit(name)) {
      await(() -> worker.poll(200).isEmpty() && assigned(name) == 1, 20_000, "the partition is assigned");
      var listings = admin.listGroups().all().get();
      var found = listings.stream().filter(each -> each.groupId().equals(name)).findFirst().get();
      equal("Share", found.type().get().toString());
      equal("share", found.protocol());
      var described = admin.describeShareGroups(List.of(name)).all().get().get(name);
      equal(1, described.members().size());
      try {
        admin.describeConsumerGroups(List.of(name)).all().get();
        check(false, "it is no consumer group");
      } catch (java.util.concurrent.ExecutionException refused) {
        check(refused.getCause() instanceof org.apache.kafka.common.errors.GroupIdNotFoundException, "" + refused);
      }
    }
  }

  // Before and after a crash

  static void before(String name) throws Exception {
    prepare(name, 1, "share.record.lock.duration.ms", "2000");
    send(name, 0, 0, 6);
    try (var worker = explicit(name)) {
      var found = worker.poll(20_000);
      equal(6, found.size());
      worker.consumer.acknowledge(found.get(0), AcknowledgeType.ACCEPT);
      worker.consumer.acknowledge(found.get(1), AcknowledgeType.RELEASE);
      worker.consumer.acknowledge(found.get(2), AcknowledgeType.REJECT);
      worker.consumer.acknowledge(found.get(3), AcknowledgeType.ACCEPT);
      worker.consumer.acknowledge(found.get(4), AcknowledgeType.RELEASE);
      worker.consumer.acknowledge(found.get(5), AcknowledgeType.ACCEPT);
      for (var result : worker.consumer.commitSync().values()) check(result.isEmpty(), "refused: " + result);
    }
  }

  static void after(String name) throws Exception {
    equal(new TreeMap<>(Map.of("v1", (short) 2, "v4", (short) 2)), released(name));
  }

  /** Who coordinates may have been lost with an answer: then a delivery counts that nobody got. */
  static void afterAFailOver(String name) throws Exception {
    var counts = released(name);
    equal(Set.of("v1", "v4"), counts.keySet());
    check(counts.values().stream().allMatch(times -> times >= 2 && times <= 5), "counts: " + counts);
  }

  static Map<String, Short> released(String name) throws Exception {
    try (var worker = explicit(name)) {
      var counts = new TreeMap<String, Short>();
      await(
          () -> {
            for (var each : worker.consumer.poll(Duration.ofMillis(100))) {
              counts.put(each.value(), each.deliveryCount().get());
              worker.consumer.acknowledge(each);
            }
            return counts.size() >= 2;
          },
          60_000,
          "what was released is delivered");
      worker.consumer.commitSync();
      equal(List.of(), worker.values(1_000));
      return counts;
    }
  }

  static void run(String name, Case body) {
    try {
      body.run(name);
      System.out.println("ok " + name);
    } catch (Throwable failure) {
      failures++;
      System.out.println("FAILED " + name + ": " + failure + " at " + failure.getStackTrace()[0]);
      for (var at : failure.getStackTrace()) {
        if (at.getClassName().startsWith("Shares")) System.out.println("    " + at);
      }
    }
  }

  static final Map<String, Case> CASES = new java.util.LinkedHashMap<>();

  static {
    CASES.put("implicit", Shares::whatIsPolledIsAcceptedByTheNextPoll);
    CASES.put("explicit", Shares::recordsAreAcceptedReleasedAndRejected);
    CASES.put("five-times", Shares::aRecordIsDeliveredFiveTimes);
    CASES.put("lock", Shares::whatIsHeldForTooLongIsDeliveredToAnother);
    CASES.put("renew", Shares::aLockCanBeRenewed);
    CASES.put("two-consumers", Shares::consumersShareAPartition);
    CASES.put("five-consumers", Shares::thereAreMoreConsumersThanPartitions);
    CASES.put("committed", Shares::abortedRecordsAreNotDelivered);
    CASES.put("uncommitted", Shares::abortedRecordsAreDeliveredToWhoReadsAll);
    CASES.put("record-limit", Shares::noMoreThanTheLimitIsAcquired);
    CASES.put("latest", Shares::aGroupBeginsAtTheEndUnlessItSaysOtherwise);
    CASES.put("by-duration", Shares::aGroupBeginsAtATime);
    CASES.put("leaving", Shares::whatAConsumerThatLeavesHadIsDeliveredAtOnce);
    CASES.put("callback", Shares::whoAsksHearsOfAcknowledgements);
    CASES.put("many", Shares::manyRecordsAreEachDeliveredOnce);
    CASES.put("tool", Shares::theToolListsDescribesResetsAndDeletes);
    CASES.put("kinds", Shares::groupsAreOfOneKind);
  }

  public static void main(String[] arguments) {
    brokers = arguments[0];
    var properties = new HashMap<String, Object>();
    properties.put("bootstrap.servers", brokers);
    admin = Admin.create(properties);
    switch (arguments[1]) {
      case "before" -> run("crash", Shares::before);
      case "after" -> run("crash", Shares::after);
      case "after-fail-over" -> run("crash", Shares::afterAFailOver);
      case "cases" -> CASES.forEach(Shares::run);
      default -> {
        for (var name : arguments[1].split(",")) run(name, CASES.get(name));
      }
    }
    admin.close(Duration.ofSeconds(5));
    System.exit(failures == 0 ? 0 : 1);
  }
}
