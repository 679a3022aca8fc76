// What people do with kafkajs, one step after the other. Each prints "ok NAME" or "not ok NAME", with what went wrong.
// Arguments: the brokers, the number of replicas.

const assert = require('node:assert/strict')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const [brokers, replicas] = process.argv.slice(2)
const suffix = `${Date.now()}`
const kafka = new Kafka({ clientId: 'suite', brokers: brokers.split(','), logLevel: logLevel.NOTHING, retry: { retries: 12 } })
const admin = kafka.admin()
const patienceMs = 90_000

const until = async (holds) => {
  const deadline = Date.now() + patienceMs
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error('it did not come')
    await new Promise((done) => setTimeout(done, 100))
  }
}

const create = async (name, numPartitions = 2) => {
  const topic = `${name}-${suffix}`
  await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: Number(replicas) }], waitForLeaders: true })
  return topic
}

const valuesOf = async (topic, count, group = `reader-${topic}`) => {
  const consumer = kafka.consumer({ groupId: group })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => found.push(message) })
  await until(() => found.length >= count)
  await new Promise((done) => setTimeout(done, 500))
  await consumer.disconnect()
  return found
}

const texts = (messages) => messages.map((message) => message.value.toString()).sort()

const sent = async (topic, values, settings = {}) => {
  const producer = kafka.producer(settings)
  await producer.connect()
  const metadata = await producer.send({ topic, acks: -1, messages: values.map((value) => ({ value, partition: 0 })) })
  await producer.disconnect()
  return metadata
}

const steps = {
  'records come back with keys, headers, times and nulls': async () => {
    const topic = await create('records', 1)
    const producer = kafka.producer()
    await producer.connect()
    await producer.send({
      topic,
      compression: CompressionTypes.GZIP,
      messages: [
        { key: 'k', value: 'v', headers: { h: 'x' }, timestamp: '1700000000000' },
        { key: null, value: 'w' },
        { key: 'gone', value: null },
      ],
    })
    await producer.disconnect()
    const [first, second, third] = await valuesOf(topic, 3)
    assert.deepEqual([first.key.toString(), first.headers.h.toString(), first.timestamp], ['k', 'x', '1700000000000'])
    assert.deepEqual([second.key, second.value.toString(), third.value], [null, 'w', null])
  },

  'an idempotent producer writes each record once, in order': async () => {
    const topic = await create('idempotent', 1)
    const producer = kafka.producer({ idempotent: true })
    await producer.connect()
    const wanted = []
    for (let number = 0; number < 50; number++) {
      wanted.push(`${number}`)
      await producer.send({ topic, acks: -1, messages: [{ value: `${number}` }] })
    }
    await producer.disconnect()
    assert.deepEqual((await valuesOf(topic, 50)).map((message) => message.value.toString()), wanted)
  },

  'a topic that nobody made is made by its first producer': async () => {
    const topic = `by-itself-${suffix}`
    await sent(topic, ['a'])
    assert.deepEqual(texts(await valuesOf(topic, 1)), ['a'])
  },

  'what a transaction aborts is not read, and what it commits is, with its offsets': async () => {
    const from = await create('from', 1)
    const to = await create('to', 1)
    await sent(from, ['a', 'b'])
    const producer = kafka.producer({ transactionalId: `tx-${suffix}`, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    for (const ends of ['abort', 'commit']) {
      const transaction = await producer.transaction()
      await transaction.send({ topic: to, messages: [{ value: ends }] })
      const offset = ends === 'commit' ? '2' : '1'
      await transaction.sendOffsets({
        consumerGroupId: `group-${suffix}`,
        topics: [{ topic: from, partitions: [{ partition: 0, offset }] }],
      })
      await transaction[ends]()
    }
    await producer.disconnect()
    assert.deepEqual(texts(await valuesOf(to, 1)), ['commit'])
    const [{ partitions }] = await admin.fetchOffsets({ groupId: `group-${suffix}`, topics: [from] })
    assert.equal(partitions[0].offset, '2')
  },

  'a group shares partitions, and gives them to who stays': async () => {
    const topic = await create('shared', 4)
    const groupId = `shared-${suffix}`
    const members = []
    const assigned = {}
    for (const name of ['a', 'b']) {
      const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, rebalanceTimeout: 20_000, heartbeatInterval: 500 })
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => (assigned[name] = payload.memberAssignment[topic] || []))
      await consumer.connect()
      await consumer.subscribe({ topics: [topic] })
      await consumer.run({ eachMessage: async () => {} })
      members.push(consumer)
    }
    await until(() => assigned.a?.length === 2 && assigned.b?.length === 2)
    const { groups } = await admin.describeGroups([groupId])
    assert.deepEqual([groups[0].state, groups[0].members.length], ['Stable', 2])
    await members[1].disconnect()
    await until(() => assigned.a.length === 4)
    await members[0].disconnect()
    await until(async () => (await admin.describeGroups([groupId])).groups[0].state === 'Empty')
    assert.ok((await admin.listGroups()).groups.some((group) => group.groupId === groupId))
    await admin.deleteGroups([groupId])
    assert.ok(!(await admin.listGroups()).groups.some((group) => group.groupId === groupId))
  },

  'a consumer goes on behind what it has committed': async () => {
    const topic = await create('goes-on', 1)
    await sent(topic, ['a', 'b'])
    assert.deepEqual(texts(await valuesOf(topic, 2, `on-${suffix}`)), ['a', 'b'])
    await sent(topic, ['c'])
    assert.deepEqual(texts(await valuesOf(topic, 1, `on-${suffix}`)), ['c'])
  },

  'offsets are set, reset, found by time, and where records were deleted': async () => {
    const topic = await create('offsets', 1)
    await sent(topic, ['a', 'b', 'c'])
    const groupId = `set-${suffix}`
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '2' }] })
    assert.deepEqual(texts(await valuesOf(topic, 1, groupId)), ['c'])
    await admin.resetOffsets({ groupId, topic, earliest: true })
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true })
    assert.equal(partitions[0].offset, '0')
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, 0))[0].offset, '0')
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
    const [{ high, low }] = await admin.fetchTopicOffsets(topic)
    assert.deepEqual([high, low], ['3', '1'])
  },

  'topics get partitions and settings, and are deleted': async () => {
    const topic = await create('changed', 1)
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    await until(async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 3)
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: 2, name: topic, configEntries: [{ name: 'retention.ms', value: '123456' }] }],
    })
    const described = () => admin.describeConfigs({ resources: [{ type: 2, name: topic, configNames: ['retention.ms'] }] })
    await until(async () => (await described()).resources[0].configEntries[0]?.configValue === '123456')
    await admin.deleteTopics({ topics: [topic] })
    await until(async () => !(await admin.listTopics()).includes(topic))
  },

  'the cluster is described': async () => {
    const described = await admin.describeCluster()
    assert.equal(described.brokers.length >= Number(replicas), true)
    assert.ok(described.brokers.some((broker) => broker.nodeId === described.controller))
    assert.ok(described.clusterId)
  },
}

const main = async () => {
  await admin.connect()
  for (const [name, step] of Object.entries(steps)) {
    try {
      await step()
      console.log(`ok ${name}`)
    } catch (error) {
      console.log(`not ok ${name}: ${error.stack}`)
    }
  }
  await admin.disconnect()
}

main().then(() => process.exit(0))
