'use strict';

/*
 * Drives the gRPC client rocketmq-client-nodejs by commands on standard input; every event is a JSON line on standard output.
 * The commands are those of GrpcDriver.java. NODE_PATH gives node_modules. Each topic has a producer of its own: one with several topics
 * may wait for ever when it starts, for the settings that came before the last route.
 */

const readline = require('readline');
const { Producer, PushConsumer, SimpleConsumer, ConsumeResult, FilterExpression } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [ endpoints, topics ] = process.argv.slice(2);
const REQUEST_LIMIT_MS = 30000;
const HELD_MS = 2000;
const quiet = { info() {}, debug() {}, warn: (...a) => console.error(...a), error: (...a) => console.error(...a) };
const options = { endpoints, namespace: '', requestTimeout: REQUEST_LIMIT_MS, logger: quiet };

if (process.env.ROCKETMQ_ACCESS_KEY) {
  options.sessionCredentials = { accessKey: process.env.ROCKETMQ_ACCESS_KEY, accessSecret: process.env.ROCKETMQ_SECRET_KEY };
}

const checker = { async check(message) {
  emitMessage('checked', message);
  return resolutionOf(message.properties.get('checked'));
} };
const producers = new Map();
const listening = [];
const simple = new Map();
let last;
let popped = [];

function emit(event, fields) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n');
}

function emitMessage(event, message, fields) {
  emit(event, { receivedAt: Date.now(), topic: message.topic, body: message.body.toString(), msgId: message.messageId,
    attempt: message.deliveryAttempt, tag: message.tag || null, keys: message.keys.join(' '), order: message.messageGroup || null,
    deliverAt: message.deliveryTimestamp ? message.deliveryTimestamp.getTime() : 0, priority: message.priority,
    properties: Object.fromEntries(message.properties), ...fields });
}

function resolutionOf(name) {
  return name === 'unknown' ? TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED : TransactionResolution[name.toUpperCase()];
}

function subscriptions(command) {
  const sql = command.get('sql');
  return new Map([[ command.get('topic'), sql ? new FilterExpression(sql, FilterType.SQL) : command.get('tags') || '*' ]]);
}

async function producerOf(topic) {
  if (!producers.has(topic)) {
    const producer = new Producer({ ...options, topics: [ topic ], checker });
    await producer.startup();
    producers.set(topic, producer);
  }
  return producers.get(topic);
}

function messageOf(command, body) {
  const message = { topic: command.get('topic'), body: Buffer.from(body), tag: command.get('tag') || 'red',
    keys: (command.get('key') || body).split(' '), properties: new Map() };
  if (command.has('order')) message.messageGroup = command.get('order');
  if (command.has('at')) message.deliveryTimestamp = new Date(Number(command.get('at')));
  if (command.has('priority')) message.priority = Number(command.get('priority'));
  for (const name of [ 'checked', 'price', 'note' ]) {
    if (command.has(name)) message.properties.set(name, command.get(name));
  }
  return message;
}

async function send(command) {
  for (const body of command.get('body').split(',')) {
    try {
      const producer = await producerOf(command.get('topic'));
      const receipt = await producer.send(messageOf(command, body));
      emit('sent', { body, msgId: receipt.messageId, handle: receipt.recallHandle });
    } catch (err) {
      emit('send_failed', { body, error: String(err) });
    }
  }
}

async function transact(command) {
  const producer = await producerOf(command.get('topic'));
  const transaction = producer.beginTransaction();
  const receipt = await producer.send(messageOf(command, command.get('body')), transaction);
  emit('sent', { body: command.get('body'), msgId: receipt.messageId });
  if (command.get('state') === 'commit') await transaction.commit();
  if (command.get('state') === 'rollback') await transaction.rollback();
}

async function recall(command) {
  try {
    const producer = await producerOf(command.get('topic'));
    const receipt = await producer.recallMessage(command.get('topic'), command.get('handle'));
    emit('recalled', { msgId: receipt.messageId });
  } catch (err) {
    emit('recall_failed', { error: String(err) });
  }
}

async function push(command) {
  const group = command.get('group');
  const fail = Number(command.get('fail') || 0);
  const consumer = new PushConsumer({ ...options, consumerGroup: group, subscriptions: subscriptions(command), messageListener: {
    async consume(message) {
      const fails = fail < 0 || message.deliveryAttempt <= fail;
      emitMessage('received', message, { group, ok: !fails });
      return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  } });
  await consumer.startup();
  listening.push(consumer);
}

async function pop(command) {
  const name = `${command.get('group')}@${command.get('topic')}`;
  if (!simple.has(name)) {
    const consumer = new SimpleConsumer({ ...options, consumerGroup: command.get('group'), subscriptions: subscriptions(command),
      awaitDuration: HELD_MS });
    await consumer.startup();
    simple.set(name, consumer);
  }
  last = simple.get(name);
  popped = await last.receive(Number(command.get('count') || 16), Number(command.get('invisible') || 20000));
  for (const message of popped) emitMessage('popped', message, { group: command.get('group') });
  await settle(command.get('then') || 'ack');
}

async function again(command) {
  await settle(command.get('then'));
}

async function settle(how) {
  for (const message of popped) {
    try {
      if (how === 'ack') await last.ack(message);
      if (how.startsWith('hide:')) await last.changeInvisibleDuration(message, Number(how.slice(5)));
    } catch (err) {
      emitMessage('refused', message, { error: String(err) });
    }
  }
}

const commands = { send, transact, recall, push, pop, again };

async function main() {
  for (const topic of topics.split(',')) await producerOf(topic);
  emit('ready', { node: process.version });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === 'close') break;
    const [ name, query ] = line.split('?');
    try {
      await commands[name](new URLSearchParams(query || ''));
      emit('done', { command: line });
    } catch (err) {
      emit('failed', { command: line, error: String(err && err.stack || err) });
    }
  }
  // Push consumers are left: each would wait for the poll that is under way.
  for (const client of [ ...simple.values(), ...producers.values() ]) await client.shutdown();
  emit('closed', {});
  process.exit(0);
}

main();
