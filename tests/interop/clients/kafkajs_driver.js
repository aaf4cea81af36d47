// Drives kafkajs for a Python process: one call a line in, as JSON, and one answer a line out.
//
//   {"call": "createProducer", "arguments": {...}}  ->  {"value": ...} or {"error": {"code": ..., "message": ...}}
//
// A process has one client. Keys, values and headers travel in base64. Records are handed to kafkajs as done
// (and thereby committed) when they are polled for, not when they arrive.
'use strict'

const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')

const COMPRESSIONS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// lz4js looks for the checksum of a block before the block, so its own reader of frames does not do.
function decompressLz4(lz4, frame) {
  const [flags, blockSizes] = [frame[4], { 4: 65536, 5: 262144, 6: 1048576, 7: 4194304 }]
  const block = Buffer.alloc(blockSizes[(frame[5] >> 4) & 7])
  const content = []
  let position = 7 + (flags & 8 ? 8 : 0)
  for (;;) {
    const word = frame.readUInt32LE(position)
    const size = word & 0x7fffffff
    position += 4
    if (size === 0) return Buffer.concat(content)
    const plain = frame.subarray(position, position + size)
    const length = word >>> 31 ? 0 : lz4.decompressBlock(frame, block, position, size, 0)
    content.push(word >>> 31 ? plain : Buffer.from(block.subarray(0, length)))
    position += size + (flags & 16 ? 4 : 0)
  }
}

function useCodecs() {
  const lz4 = require('lz4js')
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async buffer => decompressLz4(lz4, buffer),
  })
  const zstd = new Promise(resolve => require('zstd-codec').ZstdCodec.run(each => resolve(new each.Streaming())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
    decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
  })
}

const encoded = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64'))
const decoded = text => (text === null ? null : Buffer.from(text, 'base64'))

let kafka, producer, compression, acks, consumer, topic, admin
let assigned = []
let isClosing = false
const offers = [] // batches that wait to be polled: {partition, messages, settle(isTaken)}
let wakePoll = () => {}

function offer(partition, messages) {
  if (isClosing) return Promise.resolve(false)
  return new Promise(settle => {
    offers.push({ partition, messages, settle })
    wakePoll()
  })
}

function received({ partition, messages }) {
  return messages.map(message => ({
    partition,
    offset: Number(message.offset),
    key: encoded(message.key),
    value: encoded(message.value),
    timestamp_ms: Number(message.timestamp),
    headers: Object.entries(message.headers || {}).flatMap(([name, values]) =>
      (Array.isArray(values) ? values : [values]).map(value => [name, encoded(value)])),
  }))
}

// Its log goes to standard error: standard output has the answers.
const plain = (_, value) => (typeof value === 'bigint' ? String(value) : value)
const logCreator = () => entry => process.stderr.write(JSON.stringify(entry, plain) + '\n')

const calls = {
  connect({ bootstrap, retry_backoff_ms }) {
    // About a minute: a producer gives up for good when the broker takes longer than that to start again.
    const retry = { initialRetryTime: retry_backoff_ms, retries: 60, maxRetryTime: 1000 }
    const level = process.env.KAFKAJS_LOG ? logLevel.DEBUG : logLevel.NOTHING
    kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: level, logCreator, retry })
  },

  async createProducer(options) {
    compression = COMPRESSIONS[options.compression]
    acks = options.acks
    producer = kafka.producer({ idempotent: options.idempotent, maxInFlightRequests: options.idempotent ? 1 : null })
    await producer.connect()
  },
  async produce({ topic, partition, events }) {
    const messages = events.map(event => ({
      key: decoded(event.key),
      value: decoded(event.value),
      partition: partition === null ? undefined : partition,
      timestamp: event.timestamp_ms === null ? undefined : String(event.timestamp_ms),
      headers: event.headers.reduce((all, [name, value]) => {
        (all[name] = all[name] || []).push(decoded(value))
        return all
      }, {}),
    }))
    const answers = await producer.send({ topic, acks, compression, messages })
    return (answers || []).map(each => ({ partition: each.partition, base_offset: Number(each.baseOffset) }))
  },

  async createConsumer(options) {
    topic = options.topic
    consumer = kafka.consumer({
      groupId: options.group,
      sessionTimeout: options.session_timeout_ms,
      heartbeatInterval: options.heartbeat_interval_ms,
      maxWaitTimeInMs: options.fetch_wait_ms,
      allowAutoTopicCreation: false,
    })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { assigned = payload.memberAssignment[topic] || [] })
    consumer.on(consumer.events.REBALANCING, () => { assigned = [] })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommit: options.commits_by_itself,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, isStale }) => {
        if (isStale() || batch.messages.length === 0) return
        if (await offer(batch.partition, batch.messages)) resolveOffset(batch.lastOffset())
      },
    })
  },
  async poll({ timeout_ms }) {
    if (offers.length === 0) {
      await new Promise(resolve => {
        const timer = setTimeout(resolve, timeout_ms)
        wakePoll = () => { clearTimeout(timer); resolve() }
      })
      wakePoll = () => {}
    }
    const taken = offers.splice(0)
    taken.forEach(each => each.settle(true))
    return taken.flatMap(received)
  },
  assigned: () => assigned,
  async commit({ offsets }) {
    await consumer.commitOffsets(offsets.map(({ partition, offset, metadata }) => (
      { topic, partition, offset: String(offset), metadata })))
  },
  seek({ partition, offset }) {
    consumer.seek({ topic, partition, offset: String(offset) })
    offers.splice(0).forEach(each => each.settle(false))
  },

  async createAdmin() {
    admin = kafka.admin()
    await admin.connect()
  },
  createTopics: options => admin.createTopics(options),
  createPartitions: options => admin.createPartitions(options),
  deleteTopics: options => admin.deleteTopics(options),
  fetchTopicMetadata: options => admin.fetchTopicMetadata(options),
  describeCluster: () => admin.describeCluster(),
  fetchOffsets: options => admin.fetchOffsets(options),
  setOffsets: options => admin.setOffsets(options),
  fetchTopicOffsets: ({ topic }) => admin.fetchTopicOffsets(topic),
  fetchTopicOffsetsByTimestamp: ({ topic, timestamp_ms }) => admin.fetchTopicOffsetsByTimestamp(topic, timestamp_ms),
  describeConfigs: options => admin.describeConfigs(options),
  alterConfigs: options => admin.alterConfigs(options),
  listGroups: () => admin.listGroups(),
  describeGroups: ({ groups }) => admin.describeGroups(groups),
  deleteGroups: ({ groups }) => admin.deleteGroups(groups),
  deleteTopicRecords: options => admin.deleteTopicRecords(options),

  async close() {
    isClosing = true
    offers.splice(0).forEach(each => each.settle(false))
    for (const each of [producer, consumer, admin]) if (each) await each.disconnect()
  },
}

// An error of kafkajs wraps what the broker answered, after its retries.
function cause(error) {
  if (error.errors && error.errors.length) return cause(error.errors[0])
  if (error.groups && error.groups.length) return { code: error.groups[0].errorCode, message: error.message }
  if (error.code !== undefined && error.code > 0) return error
  return error.cause ? cause(error.cause) : error
}

async function main() {
  useCodecs()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line)
    let answer
    try {
      answer = { value: (await calls[request.call](request.arguments)) ?? null }
    } catch (error) {
      const { code, message } = cause(error)
      answer = { error: { code: typeof code === 'number' ? code : null, message: `${error.name}: ${message}` } }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
