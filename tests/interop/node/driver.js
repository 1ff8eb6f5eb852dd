'use strict';

/*
 * Drives the Node client ali-ons by commands on standard input; every event is a JSON line on standard output.
 *
 * usage: node driver.js NAMESERVER          (NODE_PATH or the working directory gives node_modules)
 * produce?topic=&mode=plain&count=&prefix=[&tag=][&key=][&level=][&size=]
 * consume?group=&topic=[&expression=][&fail=N][&maxReconsume=M]      fail: attempts per message that ask for a retry (-1: all)
 * close
 * The client has no one-way send and no batch. It signs with ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY of the environment, if they are there.
 */

const crypto = require('crypto');
const readline = require('readline');
const { Producer, Consumer, Message } = require('ali-ons');

const nameServer = process.argv[2];
const SHOWN_BODY = 200;
const quiet = { info() {}, debug() {}, warn: (...a) => console.error(...a), error: (...a) => console.error(...a) };
// A name server address that is not a URL is used as it is; the client then never calls the HTTP client it insists on.
const options = { nameSrv: nameServer, httpclient: { request() { throw new Error('no HTTP here'); } }, logger: quiet, clientIP: '127.0.0.1' };

if (process.env.ROCKETMQ_ACCESS_KEY) {
  Object.assign(options, { accessKeyId: process.env.ROCKETMQ_ACCESS_KEY, accessKeySecret: process.env.ROCKETMQ_SECRET_KEY });
}

const consumers = [];
let producer = null;

function emit(event, fields) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n');
}

function number(value) {
  return Number(String(value));
}

function bodyOf(command, i) {
  const start = Buffer.from(`${command.get('prefix') || 'body'}-${i}`);
  const size = Number(command.get('size') || 0);
  if (start.length >= size) return start;
  const body = Buffer.alloc(size);
  for (let at = 0; at < size; at++) body[at] = at < start.length ? start[at] : 97 + at % 23;
  return body;
}

async function produce(command) {
  if (!producer) {
    producer = new Producer({ ...options, producerGroup: 'InteropNodeProducer' });
    producer.on('error', err => emit('client_error', { error: String(err) }));
    await producer.ready();
  }
  for (let i = 0; i < Number(command.get('count') || 1); i++) {
    const message = new Message(command.get('topic'), command.get('tag'), bodyOf(command, i));
    if (!command.get('tag')) delete message.properties.TAGS;
    if (command.get('key')) message.keys = [`${command.get('key')}-${i}`];
    if (command.get('level')) message.delayTimeLevel = Number(command.get('level'));
    const result = await producer.send(message);
    emit('sent', { topic: command.get('topic'), status: result.sendStatus, msgId: result.msgId, offsetMsgId: result.offsetMsgId || null,
      queueId: result.messageQueue.queueId, queueOffset: number(result.queueOffset), sentAt: Date.now() });
  }
}

async function consume(command) {
  const group = command.get('group');
  const fail = Number(command.get('fail') || 0);
  const attempts = new Map();
  const consumer = new Consumer({ ...options, consumerGroup: group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    instanceName: `${process.pid}#${consumers.length}`, maxReconsumeTimes: Number(command.get('maxReconsume') || 16) });
  consumer.on('error', err => emit('client_error', { group, error: String(err) }));
  consumers.push(consumer);
  consumer.subscribe(command.get('topic'), command.get('expression') || '*', async message => {
    const receivedAt = Date.now();
    const id = message.properties.ORIGIN_MESSAGE_ID || message.msgId;
    const attempt = (attempts.get(id) || 0) + 1;
    attempts.set(id, attempt);
    const fails = fail < 0 || attempt <= fail;
    emit('received', { group, topic: message.topic, queueId: message.queueId, queueOffset: number(message.queueOffset),
      msgId: message.msgId, tags: message.tags || null, keys: message.keys || null, reconsumeTimes: message.reconsumeTimes,
      bornAt: number(message.bornTimestamp), storeAt: number(message.storeTimestamp), properties: message.properties,
      bodySize: message.body.length, bodySha1: crypto.createHash('sha1').update(message.body).digest('hex'),
      body: message.body.length <= SHOWN_BODY ? message.body.toString() : undefined, attempt, ok: !fails, receivedAt });
    // Consumer.ACTION_RETRY would be lost on the second attempt: the client's own handler of the retry topic drops the result.
    if (fails) throw new Error(`attempt ${attempt} fails as asked`);
  });
  await consumer.ready();
}

const commands = { produce, consume };

async function main() {
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
  for (const consumer of consumers) await consumer.close();
  if (producer) await producer.close();
  emit('closed', {});
  process.exit(0);
}

main();
