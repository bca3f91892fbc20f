package realnode

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// The networks of platforms are parts of 198.18.0.0/15, which is reserved for tests of network
// devices (RFC 2544), so that nobody else should use it.
const (
	networkBits = 20
	networks    = 1 << (networkBits - 15)
	slotSize    = 1 << (32 - networkBits) / Most
)

var testNetworks = netip.MustParsePrefix("198.18.0.0/15")

// chooseNetwork returns the network of the platform whose bridge has the name, or the next one
// that overlaps none that is taken.
func chooseNetwork(bridge string, taken []netip.Prefix) (netip.Prefix, error) {
	number := crc32.ChecksumIEEE([]byte(bridge))
	for i := range uint32(networks) {
		candidate := netip.PrefixFrom(add(testNetworks.Addr(), (number+i)%networks<<(32-networkBits)), networkBits)
		free := true
		for _, t := range taken {
			free = free && !t.Overlaps(candidate)
		}
		if free {
			return candidate, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("all of %s is in use on this machine: stop another platform with real nodes", testNetworks)
}

// addresses are those of the node with the number: its own, and the first and last of its pods.
func addresses(network netip.Prefix, slot int) (node, firstPod, lastPod netip.Addr) {
	first := add(network.Addr(), uint32(slot)*slotSize)
	return add(first, 2), add(first, 3), add(first, slotSize-2)
}

// gateway is the address of the bridge itself.
func gateway(network netip.Prefix) netip.Addr { return add(network.Addr(), 1) }

func add(address netip.Addr, n uint32) netip.Addr {
	bytes := address.As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])+n)
	return netip.AddrFrom4(bytes)
}

// takenNetworks are those of this machine's interfaces but for the one of that name.
func takenNetworks(except string) ([]netip.Prefix, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var taken []netip.Prefix
	for _, one := range interfaces {
		if one.Name == except {
			continue
		}
		addresses, err := one.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", one.Name, err)
		}
		for _, address := range addresses {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil {
				taken = append(taken, prefix.Masked())
			}
		}
	}
	return taken, nil
}

// ensureBridge makes the bridge with its network, and returns the network.
func ensureBridge(name string) (netip.Prefix, error) {
	if err := removeBridge(name); err != nil {
		return netip.Prefix{}, err
	}
	taken, err := takenNetworks(name)
	if err != nil {
		return netip.Prefix{}, err
	}
	network, err := chooseNetwork(name, taken)
	if err != nil {
		return netip.Prefix{}, err
	}
	address := netip.PrefixFrom(gateway(network), networkBits).String()
	return network, errors.Join(
		ip("link", "add", name, "type", "bridge"),
		ip("address", "add", address, "dev", name),
		ip("link", "set", name, "up"))
}

func removeBridge(name string) error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	if !slices.ContainsFunc(interfaces, func(i net.Interface) bool { return i.Name == name }) {
		return nil
	}
	return ip("link", "delete", name)
}

// ip runs the command of that name.
func ip(args ...string) error {
	if output, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}

// writeNetwork writes by which plugins containerd connects the pods of a node.
func writeNetwork(file, bridge string, network netip.Prefix, slot int) error {
	_, first, last := addresses(network, slot)
	config, err := json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0", "name": "gpuplan",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": bridge,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/cni", // of the node, which ends with it
				"ranges": [][]any{{map[string]any{"subnet": network.String(), "rangeStart": first.String(), "rangeEnd": last.String(), "gateway": gateway(network).String()}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, config, 0o600)
}
