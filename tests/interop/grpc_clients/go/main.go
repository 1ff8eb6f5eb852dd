// Drives the Go client of RocketMQ 5 by commands on standard input; every event is a JSON line on standard output.
// The commands are those of GrpcDriver.java.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

// The least a server holds an empty receive; this client allows no more than what it says here and three seconds.
const held = 5 * time.Second

type fields map[string]any

// The clients of the process: one producer, and consumers as commands ask for them.
type program struct {
	endpoint string
	producer rmq.Producer
	pushing  []rmq.PushConsumer
	simple   map[string]rmq.SimpleConsumer
	last     rmq.SimpleConsumer
	popped   []*rmq.MessageView
}

var out sync.Mutex

func emit(event string, more fields) {
	more["event"] = event
	line, err := json.Marshal(more)
	if err != nil {
		log.Fatal(err)
	}
	out.Lock()
	defer out.Unlock()
	// The name of the event comes first, as the reader of these lines looks for it.
	fmt.Printf("{\"event\":%q,%s\n", event, strings.Replace(string(line), "{", "", 1))
}

func emitMessage(event string, message *rmq.MessageView, more fields) {
	more["receivedAt"] = time.Now().UnixMilli()
	more["topic"] = message.GetTopic()
	more["body"] = string(message.GetBody())
	more["msgId"] = message.GetMessageId()
	more["attempt"] = message.GetDeliveryAttempt()
	more["tag"] = message.GetTag()
	more["keys"] = strings.Join(message.GetKeys(), " ")
	more["order"] = message.GetMessageGroup()
	more["properties"] = message.GetProperties()
	more["deliverAt"] = 0
	if at := message.GetDeliveryTimestamp(); at != nil {
		more["deliverAt"] = at.UnixMilli()
	}
	emit(event, more)
}

func resolution(name string) rmq.TransactionResolution {
	return map[string]rmq.TransactionResolution{"commit": rmq.COMMIT, "rollback": rmq.ROLLBACK}[name]
}

func filter(command url.Values) map[string]*rmq.FilterExpression {
	expression := rmq.SUB_ALL
	if command.Has("sql") {
		expression = rmq.NewFilterExpressionWithType(command.Get("sql"), rmq.SQL92)
	} else if command.Has("tags") {
		expression = rmq.NewFilterExpression(command.Get("tags"))
	}
	return map[string]*rmq.FilterExpression{command.Get("topic"): expression}
}

func number(command url.Values, name string, otherwise int) int {
	if value, err := strconv.Atoi(command.Get(name)); err == nil {
		return value
	}
	return otherwise
}

func text(command url.Values, name, otherwise string) string {
	if command.Has(name) {
		return command.Get(name)
	}
	return otherwise
}

func message(command url.Values, body string) *rmq.Message {
	made := &rmq.Message{Topic: command.Get("topic"), Body: []byte(body)}
	made.SetTag(text(command, "tag", "red"))
	made.SetKeys(strings.Fields(text(command, "key", body))...)
	if command.Has("order") {
		made.SetMessageGroup(command.Get("order"))
	}
	if command.Has("at") {
		made.SetDelayTimestamp(time.UnixMilli(int64(number(command, "at", 0))))
	}
	if command.Has("priority") {
		if err := made.SetPriority(int32(number(command, "priority", 0))); err != nil {
			log.Fatal(err)
		}
	}
	for _, name := range []string{"checked", "price", "note"} {
		if command.Has(name) {
			made.AddProperty(name, command.Get(name))
		}
	}
	return made
}

func (it *program) configuration(group string) *rmq.Config {
	return &rmq.Config{Endpoint: it.endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{
		AccessKey: os.Getenv("ROCKETMQ_ACCESS_KEY"), AccessSecret: os.Getenv("ROCKETMQ_SECRET_KEY")}}
}

func (it *program) start(topics []string) error {
	checker := &rmq.TransactionChecker{Check: func(message *rmq.MessageView) rmq.TransactionResolution {
		emitMessage("checked", message, fields{})
		return resolution(message.GetProperties()["checked"])
	}}
	producer, err := rmq.NewProducer(it.configuration(""), rmq.WithTopics(topics...), rmq.WithTransactionChecker(checker))
	if err != nil {
		return err
	}
	it.producer = producer
	return producer.Start()
}

func (it *program) send(command url.Values) error {
	for _, body := range strings.Split(command.Get("body"), ",") {
		receipts, err := it.producer.Send(context.Background(), message(command, body))
		if err != nil {
			emit("send_failed", fields{"body": body, "error": err.Error()})
			continue
		}
		emit("sent", fields{"body": body, "msgId": receipts[0].MessageID, "handle": receipts[0].RecallHandle})
	}
	return nil
}

func (it *program) transact(command url.Values) error {
	transaction := it.producer.BeginTransaction()
	receipts, err := it.producer.SendWithTransaction(context.Background(), message(command, command.Get("body")), transaction)
	if err != nil {
		return err
	}
	emit("sent", fields{"body": command.Get("body"), "msgId": receipts[0].MessageID})
	switch resolution(command.Get("state")) {
	case rmq.COMMIT:
		return transaction.Commit()
	case rmq.ROLLBACK:
		return transaction.RollBack()
	}
	return nil
}

func (it *program) recall(command url.Values) error {
	id, err := it.producer.Recall(context.Background(), command.Get("topic"), command.Get("handle"))
	if err != nil {
		emit("recall_failed", fields{"error": err.Error()})
	} else {
		emit("recalled", fields{"msgId": id})
	}
	return nil
}

func (it *program) push(command url.Values) error {
	group, fail := command.Get("group"), int32(number(command, "fail", 0))
	listener := &rmq.FuncMessageListener{Consume: func(message *rmq.MessageView) rmq.ConsumerResult {
		fails := fail < 0 || message.GetDeliveryAttempt() <= fail
		emitMessage("received", message, fields{"group": group, "ok": !fails})
		if fails {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	consumer, err := rmq.NewPushConsumer(it.configuration(group), rmq.WithPushSubscriptionExpressions(filter(command)),
		rmq.WithPushAwaitDuration(held), rmq.WithPushMessageListener(listener), rmq.WithPushConsumptionThreadCount(2))
	if err != nil {
		return err
	}
	it.pushing = append(it.pushing, consumer)
	return consumer.Start()
}

func (it *program) pop(command url.Values) error {
	group := command.Get("group")
	name := group + "@" + command.Get("topic")
	if it.simple[name] == nil {
		consumer, err := rmq.NewSimpleConsumer(it.configuration(group), rmq.WithSimpleAwaitDuration(held),
			rmq.WithSimpleSubscriptionExpressions(filter(command)))
		if err != nil {
			return err
		}
		if err = consumer.Start(); err != nil {
			return err
		}
		it.simple[name] = consumer
	}
	it.last = it.simple[name]
	invisible := time.Duration(number(command, "invisible", 20_000)) * time.Millisecond
	popped, err := it.last.Receive(context.Background(), int32(number(command, "count", 16)), invisible)
	if status, is := rmq.AsErrRpcStatus(err); is && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
		err = nil
	}
	if err != nil {
		return err
	}
	it.popped = popped
	for _, message := range popped {
		emitMessage("popped", message, fields{"group": group})
	}
	it.settle(text(command, "then", "ack"))
	return nil
}

func (it *program) settle(how string) {
	for _, message := range it.popped {
		var err error
		if how == "ack" {
			err = it.last.Ack(context.Background(), message)
		} else if hidden, is := strings.CutPrefix(how, "hide:"); is {
			ms, _ := strconv.Atoi(hidden)
			err = it.last.ChangeInvisibleDuration(message, time.Duration(ms)*time.Millisecond)
		}
		if err != nil {
			emitMessage("refused", message, fields{"error": err.Error()})
		}
	}
}

func (it *program) run(name string, command url.Values) error {
	switch name {
	case "send":
		return it.send(command)
	case "transact":
		return it.transact(command)
	case "recall":
		return it.recall(command)
	case "push":
		return it.push(command)
	case "pop":
		return it.pop(command)
	case "again":
		it.settle(command.Get("then"))
		return nil
	}
	return fmt.Errorf("unknown command %s", name)
}

func stop(client interface{ GracefulStop() error }) {
	if err := client.GracefulStop(); err != nil {
		log.Print(err)
	}
}

func main() {
	rmq.EnableSsl = os.Getenv("ROCKETMQ_TLS") == "true"
	rmq.ResetLogger()
	it := &program{endpoint: os.Args[1], simple: map[string]rmq.SimpleConsumer{}}
	if err := it.start(strings.Split(os.Args[2], ",")); err != nil {
		log.Fatal(err)
	}
	emit("ready", fields{"go": "v5.1.4"})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "close" {
		name, query, _ := strings.Cut(lines.Text(), "?")
		command, err := url.ParseQuery(query)
		if err == nil {
			err = it.run(name, command)
		}
		if err != nil {
			emit("failed", fields{"command": lines.Text(), "error": err.Error()})
		} else {
			emit("done", fields{"command": lines.Text()})
		}
	}
	// Push consumers are left: each would wait for the poll that is under way.
	for _, consumer := range it.simple {
		stop(consumer)
	}
	stop(it.producer)
	emit("closed", fields{})
}
