// Runs the test cases of grpc-go's interoperability client against one address, all on one connection, and prints the name of each that
// passed. A case that fails ends the program with status 1. The makers' own program does the same one case at a time, and brings name
// services and load balancers that take minutes to compile.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	connection, err := grpc.NewClient("passthrough:///"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	client := pb.NewTestServiceClient(connection)
	cases := []struct {
		name string
		run  func(context.Context)
	}{
		{"empty_unary", func(c context.Context) { interop.DoEmptyUnaryCall(c, client) }},
		{"large_unary", func(c context.Context) { interop.DoLargeUnaryCall(c, client) }},
		{"client_streaming", func(c context.Context) { interop.DoClientStreaming(c, client) }},
		{"server_streaming", func(c context.Context) { interop.DoServerStreaming(c, client) }},
		{"ping_pong", func(c context.Context) { interop.DoPingPong(c, client) }},
		{"empty_stream", func(c context.Context) { interop.DoEmptyStream(c, client) }},
		{"timeout_on_sleeping_server", func(c context.Context) { interop.DoTimeoutOnSleepingServer(c, client) }},
		{"cancel_after_begin", func(c context.Context) { interop.DoCancelAfterBegin(c, client) }},
		{"cancel_after_first_response", func(c context.Context) { interop.DoCancelAfterFirstResponse(c, client) }},
		{"custom_metadata", func(c context.Context) { interop.DoCustomMetadata(c, client) }},
		{"status_code_and_message", func(c context.Context) { interop.DoStatusCodeAndMessage(c, client) }},
		{"special_status_message", func(c context.Context) { interop.DoSpecialStatusMessage(c, client) }},
		{"unimplemented_method", func(c context.Context) { interop.DoUnimplementedMethod(c, connection) }},
		{"unimplemented_service", func(c context.Context) {
			interop.DoUnimplementedService(c, pb.NewUnimplementedServiceClient(connection))
		}},
	}
	for _, one := range cases {
		limited, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		one.run(limited)
		cancel()
		fmt.Println(one.name)
	}
}
