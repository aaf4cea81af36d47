// Authenticates with franz-go or sarama: sends one record, reads it again, and prints {"value": ...} or {"error": ...}.
// The settings arrive as JSON on standard input, so that no secret is in a list of processes.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	scramsasl "github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/xdg-go/scram"
)

const timeout = 20 * time.Second

type access struct {
	Client, Bootstrap, Protocol, Ca, Mechanism, Username, Password, Token, Certificate, Topic, Value string
}

func main() {
	var given access
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		panic(err)
	}
	exchange := map[string]func(access) (string, error){"franz-go": withFranz, "sarama": withSarama}[given.Client]
	value, err := exchange(given)
	answer := map[string]string{"value": value}
	if err != nil {
		answer = map[string]string{"error": err.Error()}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		panic(err)
	}
}

func tlsConfig(given access) *tls.Config {
	if !strings.HasSuffix(given.Protocol, "SSL") {
		return nil
	}
	ca, err := os.ReadFile(given.Ca)
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12, ServerName: "localhost"}
	config.RootCAs.AppendCertsFromPEM(ca)
	if given.Certificate != "" {
		own, err := tls.LoadX509KeyPair(given.Certificate, given.Certificate)
		if err != nil {
			panic(err)
		}
		// A client of Go sends no certificate whose CA the broker does not name, unless it has no choice.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	return config
}

func withFranz(given access) (string, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(given.Bootstrap), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if config := tlsConfig(given); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	if mechanism := franzMechanism(given); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	if err := producer.Ping(ctx); err != nil {
		return "", err
	}
	sent := &kgo.Record{Topic: given.Topic, Partition: 0, Value: []byte(given.Value)}
	if err := producer.ProduceSync(ctx, sent).FirstErr(); err != nil {
		return "", err
	}
	from := map[string]map[int32]kgo.Offset{given.Topic: {0: kgo.NewOffset().At(sent.Offset)}}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumePartitions(from))...)
	if err != nil {
		return "", err
	}
	defer consumer.Close()
	fetches := consumer.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		return "", err
	}
	return string(fetches.Records()[0].Value), nil
}

func franzMechanism(given access) sasl.Mechanism {
	switch given.Mechanism {
	case "PLAIN":
		return plain.Auth{User: given.Username, Pass: given.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scramsasl.Auth{User: given.Username, Pass: given.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scramsasl.Auth{User: given.Username, Pass: given.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: given.Token}.AsMechanism()
	}
	return nil
}

func withSarama(given access) (string, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Metadata.Retry.Max = 0
	if given.Certificate != "" || strings.HasSuffix(given.Protocol, "SSL") {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, tlsConfig(given)
	}
	if given.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(given.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = given.Username, given.Password
		config.Net.SASL.TokenProvider = tokenProvider(given.Token)
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{given.Mechanism, nil} }
	}
	producer, err := sarama.NewSyncProducer([]string{given.Bootstrap}, config)
	if err != nil {
		return "", err
	}
	defer producer.Close()
	message := &sarama.ProducerMessage{Topic: given.Topic, Partition: 0, Value: sarama.StringEncoder(given.Value)}
	_, offset, err := producer.SendMessage(message)
	if err != nil {
		return "", err
	}
	consumer, err := sarama.NewConsumer([]string{given.Bootstrap}, config)
	if err != nil {
		return "", err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(given.Topic, 0, offset)
	if err != nil {
		return "", err
	}
	defer partition.Close()
	select {
	case read := <-partition.Messages():
		return string(read.Value), nil
	case <-time.After(timeout):
		return "", errors.New("no record arrived in time")
	}
}

type tokenProvider string

func (token tokenProvider) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(token)}, nil
}

// scramClient lets sarama use a library for SCRAM, as sarama's example does.
type scramClient struct {
	mechanism    string
	conversation *scram.ClientConversation
}

func (each *scramClient) Begin(user, password, authorizationId string) error {
	hash, known := map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}[each.mechanism]
	if !known {
		return fmt.Errorf("unknown mechanism %s", each.mechanism)
	}
	client, err := hash.NewClient(user, password, authorizationId)
	if err != nil {
		return err
	}
	each.conversation = client.NewConversation()
	return nil
}

func (each *scramClient) Step(challenge string) (string, error) { return each.conversation.Step(challenge) }

func (each *scramClient) Done() bool { return each.conversation.Done() }
