// Renews the Leases of many Nodes as a kubelet renews its own: with the controller that a kubelet uses, over a connection for each
// Node, in protobuf.
//
//	renewer SECONDS_PER_RENEWAL NAME=KUBECONFIG...
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "renewer:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("usage: renewer SECONDS_PER_RENEWAL NAME=KUBECONFIG...")
	}
	seconds, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	for _, word := range words[1:] {
		name, kubeconfig, _ := strings.Cut(word, "=")
		if err := renew(name, kubeconfig, int32(seconds)); err != nil {
			return err
		}
		// Not all in one moment.
		time.Sleep(time.Duration(seconds) * time.Second / time.Duration(len(words)-1))
	}
	select {}
}

// As cmd/kubelet makes its client for heartbeats, and pkg/kubelet its Lease.
func renew(name, kubeconfig string, seconds int32) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "kubelet/v1.36.3 (linux/amd64) kubernetes/0000000"
	config.QPS, config.Timeout = -1, 10*time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	own := func(lease *coordinationv1.Lease) error {
		if len(lease.OwnerReferences) == 0 {
			node, err := client.CoreV1().Nodes().Get(context.TODO(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}}
		}
		return nil
	}
	controller := lease.NewController(
		clock.RealClock{}, client, name, 4*seconds, nil, time.Duration(seconds)*time.Second, name, "kube-node-lease", own)
	go controller.Run(context.Background())
	return nil
}
