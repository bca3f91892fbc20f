package nccl_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/nccl"
)

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		log  string
		want nccl.Use
	}{
		"nothing": {"Train Epoch: 1 [0/60000 (0%)]\tloss=2.3000\nUsing network of friends", nccl.Use{}},
		"eRDMA": {`mnist-master-0:1:20 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so).
mnist-master-0:1:20 [0] NCCL INFO NET/IB : Using [0]erdma_0:1/RoCE [RO]; OOB eth0:10.0.0.4<0>
mnist-master-0:1:20 [0] NCCL INFO Using network IB
mnist-master-0:1:31 [0] NCCL INFO Channel 00/0 : 2[0] -> 0[0] [receive] via NET/IB/0
mnist-master-0:1:31 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/0
`, nccl.Use{Network: "IB", Devices: []string{"erdma_0:1/RoCE"}, Channels: []string{"NET/IB"}}},
		"several devices, NVLink and GPUDirect": {`h:9:9 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]{virtual} mlx5_2:1/RoCE [RO]; OOB ib0:10.0.0.1<0>
h:9:9 [3] NCCL INFO Assigned NET plugin IB to comm
h:9:9 [3] NCCL INFO Channel 00/04 : 0[0] -> 1[1] via P2P/CUMEM/read
h:9:9 [3] NCCL INFO Channel 00/0 : 3[3] -> 8[0] [send] via NET/IB/2(7)/GDRDMA
`, nccl.Use{Network: "IB", Devices: []string{"mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_2:1/RoCE"}, Channels: []string{"NET/IB/GDRDMA", "P2P/CUMEM"}}},
		"TCP, where RDMA was looked for": {`h:1:1 [6] NCCL INFO NET/IB : No device found.
h:1:1 [6] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>
h:1:1 [6] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:fe80::84f5%eth1<0>
h:1:1 [6] NCCL INFO Using network Socket
h:1:1 [6] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
h:1:1 [6] NCCL INFO Channel 00 : 0[0] -> 8[1] [send] via NET/Socket/0
`, nccl.Use{Network: "Socket", Devices: []string{"eth0", "eth1"}, Channels: []string{"NET/Socket", "SHM/direct"}}},
		"an old version, which does not say what it has chosen": {`m:20:289 [0] NCCL INFO NET/Socket : Using [0]ib0:192.168.11.1<0>
m:20:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>
m:20:289 [0] NCCL INFO Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA
m:20:289 [0] NCCL INFO Channel 02 : 3[ca000] -> 0[87000] via P2P/direct pointer
`, nccl.Use{Network: "IB", Devices: []string{"mlx5_0:1/IB"}, Channels: []string{"NET/IB/GDRDMA", "P2P/direct"}}},
		"shared memory as old versions call it": {`d:64:87 [2] NCCL INFO Channel 00 : 2[89000] -> 3[b2000] via direct shared memory
`, nccl.Use{Channels: []string{"SHM/direct"}}},
		"2.4, whose channels are rings": {`m:2:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>
m:2:9 [0] NCCL INFO Ring 00 : 3 -> 10 [send] via NET/IB/0/GDRDMA
m:2:9 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via direct shared memory
m:2:9 [0] NCCL INFO Ring 01 : 1[1] -> 2[2] via P2P/IPC
`, nccl.Use{Network: "IB", Devices: []string{"mlx5_0:1/IB"}, Channels: []string{"NET/IB/GDRDMA", "P2P/IPC", "SHM/direct"}}},
		"rings that say no way": {"m:2:9 [0] NCCL INFO Ring 00 : 1 -> 0 -> 1\n", nccl.Use{}},
		"behind what a launcher writes in front, by Windows": {"[1,0]<stdout>:h:1:1 [0] NCCL INFO Using network IBext_v8\r\n[1,3]<stdout>:h:1:1 [3] NCCL INFO Channel 02/0 : 6[6] -> 38[6] [receive] via NET/IBext_v8/1\r\n",
			nccl.Use{Network: "IBext_v8", Channels: []string{"NET/IBext_v8"}}},
		"a long line before":  {strings.Repeat("#", 1<<20) + "\nNCCL INFO Using network IB", nccl.Use{Network: "IB"}},
		"the last one counts": {"NCCL INFO Using network IB\nNCCL INFO Using network Socket\n", nccl.Use{Network: "Socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nccl.Read(iotest.OneByteReader(strings.NewReader(test.log)))
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

// What came before an error counts.
func TestReadThatEnds(t *testing.T) {
	cut := errors.New("cut off")
	got, err := nccl.Read(io.MultiReader(strings.NewReader("NCCL INFO Using network IB\n"), iotest.ErrReader(cut)))
	assert.Equal(t, "IB", got.Network)
	assert.ErrorIs(t, err, cut)
}

func FuzzRead(f *testing.F) {
	f.Add("h:1:1 [0] NCCL INFO NET/IB : Using [0]erdma_0:1/RoCE [RO]; OOB eth0:10.0.0.4<0>\nNCCL INFO Using network IB")
	f.Add("NCCL INFO Channel 00/0 : 3[3] -> 8[0] [send] via NET/IB/2(7)/GDRDMA")
	f.Add("NCCL INFO Using network \x1b[31mIB\nNCCL INFO NET/ : Using [0]\xff")
	f.Fuzz(func(t *testing.T, log string) {
		got, err := nccl.Read(strings.NewReader(log))
		require.NoError(t, err)
		for _, text := range append(append([]string{got.Network}, got.Devices...), got.Channels...) {
			assert.Regexp(t, `^[\w./:-]{0,100}$`, text, "it is shown to people")
		}
	})
}
