// Authenticates with kafkajs: sends one record, reads it again, and prints {"value": ...} or {"error": ...}.
// The settings arrive as JSON on standard input, so that no secret is in a list of processes.
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

function settings(access) {
  const found = { brokers: [access.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 1 } }
  if (access.protocol.endsWith('SSL')) {
    found.ssl = { ca: [fs.readFileSync(access.ca)] }
    if (access.certificate) {
      found.ssl.cert = found.ssl.key = fs.readFileSync(access.certificate)
    }
  }
  if (access.token) {
    found.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: access.token }) }
  } else if (access.mechanism) {
    found.sasl = { mechanism: access.mechanism.toLowerCase(), username: access.username, password: access.password }
  }
  return found
}

async function exchange(access) {
  const kafka = new Kafka(settings(access))
  const producer = kafka.producer()
  await producer.connect()
  const messages = [{ value: access.value, partition: 0 }]
  const [{ baseOffset }] = await producer.send({ topic: access.topic, messages })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `kafkajs-${process.pid}` })
  await consumer.connect()
  await consumer.subscribe({ topics: [access.topic] })
  const value = await new Promise((resolve, reject) => {
    const eachMessage = async ({ message }) => {
      if (message.offset === baseOffset) resolve(message.value.toString())
    }
    consumer.run({ eachMessage }).catch(reject)
    consumer.seek({ topic: access.topic, partition: 0, offset: baseOffset })
  })
  await consumer.disconnect()
  return value
}

exchange(JSON.parse(fs.readFileSync(0)))
  .then(value => ({ value }), error => ({ error: `${error.name}: ${error.message}` }))
  .then(answer => {
    process.stdout.write(JSON.stringify(answer) + '\n', () => process.exit())
  })
