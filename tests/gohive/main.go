// gohive as a client of the tests: logs in, runs one statement, and prints its rows as a JSON list of objects.
//
//	gohive sasl|thrift|http HOST:PORT STATEMENT [CA]
//
// LOGIN_USER and LOGIN_PASSWORD are the credentials; with LOGIN_SERVICE, the first part of a service's name, they are a Kerberos
// ticket of this machine. With a file of certificates that it trusts it connects by TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/beltran/gohive"
)

const deadline = time.Minute

func main() {
	// The library panics where a server closes the connection of a login.
	defer func() {
		if cause := recover(); cause != nil {
			fail(fmt.Errorf("%v", cause))
		}
	}()
	rows, err := execute(os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(rows)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func execute(arguments []string) ([]map[string]any, error) {
	if len(arguments) < 3 || len(arguments) > 4 {
		return nil, fmt.Errorf("usage: gohive sasl|thrift|http HOST:PORT STATEMENT [CA]")
	}
	configuration := gohive.NewConnectConfiguration()
	configuration.Username, configuration.Password = os.Getenv("LOGIN_USER"), os.Getenv("LOGIN_PASSWORD")
	configuration.ConnectTimeout, configuration.SocketTimeout = deadline, deadline
	auth := "NONE"
	switch arguments[0] {
	case "sasl":
	case "thrift":
		auth = "NOSASL"
	case "http":
		configuration.TransportMode, configuration.HTTPPath = "http", "cliservice"
	default:
		return nil, fmt.Errorf("unknown transport %s", arguments[0])
	}
	host, port, err := address(arguments[1])
	if err != nil {
		return nil, err
	}
	if configuration.Service = os.Getenv("LOGIN_SERVICE"); configuration.Service != "" {
		auth = "KERBEROS"
	}
	if len(arguments) == 4 {
		if configuration.TLSConfig, err = trusting(arguments[3], host); err != nil {
			return nil, err
		}
	}
	connection, err := gohive.Connect(host, port, auth, configuration)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return result(connection, arguments[2])
}

func result(connection *gohive.Connection, statement string) ([]map[string]any, error) {
	within, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cursor := connection.Cursor()
	defer cursor.Close()
	cursor.Exec(within, statement)
	rows := []map[string]any{}
	for cursor.Err == nil && cursor.HasMore(within) {
		if cursor.Err == nil {
			rows = append(rows, cursor.RowMap(within))
		}
	}
	return rows, cursor.Err
}

func address(text string) (string, int, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, err
	}
	number, err := strconv.Atoi(port)
	return host, number, err
}

func trusting(path, host string) (*tls.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return &tls.Config{RootCAs: trusted, ServerName: host}, nil
}
