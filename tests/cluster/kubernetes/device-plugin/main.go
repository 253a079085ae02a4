// Turns lines on standard input into what a device plug-in does, by the kubelet's own library for such tests:
//
//	register                     and the answer on standard output, "registered" or why not
//	devices a=Healthy b=Sick     the whole list, as it is now
//
// Usage: device-plugin RESOURCE FILE-NAME
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

func main() {
	resource, socket := os.Args[1], filepath.Join(pluginapi.DevicePluginPath, os.Args[2])
	stub := plugin.NewDevicePluginStub(klog.Background(), nil, socket, resource, false, false)
	if err := stub.Start(context.Background()); err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "register":
			err := stub.Register(context.Background(), pluginapi.KubeletSocket, resource, pluginapi.DevicePluginPath)
			if err != nil {
				fmt.Println(err)
			} else {
				fmt.Println("registered")
			}
		case "devices":
			devices := []*pluginapi.Device{}
			for _, word := range words[1:] {
				name, health, _ := strings.Cut(word, "=")
				devices = append(devices, &pluginapi.Device{ID: name, Health: health})
			}
			stub.Update(devices)
		}
	}
}
