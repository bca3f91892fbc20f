// A library in place of libnvidia-ml.so.1 for tests: a machine with eight GPUs
// wired like a DGX-1 with V100. It exports only what the package calls; with OLD
// defined, only what an old driver has.
//
// Files in the folder CONTROL say what is wrong:
//   lost      "3"     GPU 3 has fallen off the bus
//   down      "0 3"   the links between GPUs 0 and 3 are down
//   ecc       "4 2"   GPU 4 has counted 2 uncorrectable errors
//   energy    "4 9"   GPU 4 has used 9 mJ
//   remap     "6"     GPU 6 could not replace a memory row
//   pending   "6"     GPU 6 will replace a memory row at its next reset
//   pages     "6"     GPU 6 will retire memory pages at its next reset
//   gone      "3"     GPU 3 is not listed, and those behind it are numbered anew
//   pcie      "2 4"   GPU 2 has 4 PCI Express lanes
//   slow      "2 1"   GPU 2 runs at PCI Express generation 1
//   best      "2 15"  GPU 2 could run at PCI Express generation 15
//   busy      "2 90"  GPU 2 is used at 90 %
//   hot       "2 97"  GPU 2 is at 97 degrees
//   memory    "2 512" GPU 2 uses 512 MiB
//   throttle  "2 64"  GPU 2 runs slower for the reasons 64
//   pid       "2 77"  process 77 computes on GPU 2, and has 256 MiB and 30 % of it
//   client    "2 78"  process 78 does so by MPS
//   mig       "2"     GPU 2 is in MIG mode, and the others may be
//   profiles  "2 1"   it is split into 2 MIG devices 1g.5gb and 1 device 3g.20gb
//   migsoon   "3"     GPU 3 will be in MIG mode after its next reset
//   mode      "2 3"   GPU 2 is in compute mode 3, as it was set
//   locked            compute modes may not be set
//   fabric    "2 1"   GPU 2 has joined its fabric as far as state 1
//   p2p       "2 4"   peer-to-peer transfers with GPU 2 have status 4
//   atomics   "2 5"   as p2p, for atomic operations alone
//   mask      "1"     the health mask of that fabric
//   clique    "7"     its NVLink domain is clique 7 of a rack
//   version   "99"    the version of all NVLinks
//   badtext   "2"     the UUID of GPU 2 is no text
//   twin      "2 1"   GPU 2 has the UUID of GPU 1
//   hang              counting the GPUs does not end while the file is there
//   recovery  "7 1"   the driver asks for action 1 on GPU 7
//   xid       "5 95"  one event XID 95 of GPU 5; the file is removed
//   broken    "15"    one wait for events fails with error 15; the file is removed
//   deaf              events are not supported
//   unloaded          the driver is not loaded
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GPUS 8
enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15 };

// A device is the address of its slot, so that its index is easy to find.
static char slots[GPUS];
typedef char *device_t;
#define INDEX(d) ((int)((d) - slots))

static const int pairs[][3] = {
	{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
	{2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2},
};
static const int buses[GPUS] = {0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A};

// control reads a control file and returns how many numbers it has, -1 without the file.
static int control(const char *name, int *a, int *b)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", CONTROL, name);
	FILE *f = fopen(path, "r");
	if (!f)
		return -1;
	int n = fscanf(f, "%d %d", a, b);
	fclose(f);
	return n;
}

// is tells whether a control file names a GPU.
static int is(const char *name, int GPU)
{
	int a, b;
	return control(name, &a, &b) >= 1 && a == GPU;
}

// value is the second number of a control file that names a GPU, else another.
static int value(const char *name, int GPU, int otherwise)
{
	int a, b;
	return control(name, &a, &b) == 2 && a == GPU ? b : otherwise;
}

static int is_lost(int GPU) { return is("lost", GPU); }

// peer returns the GPU at the other end of a link, -1 when the link is not active.
static int peer(int GPU, unsigned link)
{
	int a, b, down = control("down", &a, &b) == 2;
	unsigned next = 0;
	for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		const int *p = pairs[i];
		if (p[0] != GPU && p[1] != GPU)
			continue;
		if (link >= next && link < next + p[2]) {
			if (down && ((p[0] == a && p[1] == b) || (p[0] == b && p[1] == a)))
				return -1;
			return p[0] == GPU ? p[1] : p[0];
		}
		next += p[2];
	}
	return -1;
}

typedef struct {
	char busIdLegacy[16];
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} pci_t;

static int fill_pci(int GPU, pci_t *pci)
{
	memset(pci, 0, sizeof *pci);
	pci->bus = buses[GPU];
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02x:00.0", buses[GPU]);
	snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", buses[GPU]);
	return SUCCESS;
}

static int driver(void) { return access(CONTROL "/unloaded", F_OK) == 0 ? DRIVER_NOT_LOADED : SUCCESS; }

int nvmlInit_v2(void) { return driver(); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code)
{
	return code == NO_PERMISSION ? "Insufficient Permissions" : code == GPU_IS_LOST ? "GPU is lost" : code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "another error";
}
int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	snprintf(version, length, "550.54.15");
	return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
	int a, b;
	while (access(CONTROL "/hang", F_OK) == 0)
		usleep(1000);
	*count = GPUS - (control("gone", &a, &b) == 1);
	return driver();
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
	int a, b;
	if (control("gone", &a, &b) == 1 && (int)index >= a)
		index++;
	*device = slots + index;
	return is_lost(index) ? GPU_IS_LOST : SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device)
{
	int GPU;
	if (sscanf(uuid, "GPU-0000000%d", &GPU) != 1 || GPU >= GPUS)
		return NOT_FOUND;
	*device = slots + GPU;
	return is_lost(GPU) ? GPU_IS_LOST : driver();
}
int nvmlDeviceGetComputeMode(device_t d, int *mode)
{
	*mode = value("mode", INDEX(d), 0);
	return SUCCESS;
}
int nvmlDeviceSetComputeMode(device_t d, int mode)
{
	if (access(CONTROL "/locked", F_OK) == 0)
		return NO_PERMISSION;
	FILE *f = fopen(CONTROL "/mode", "w");
	fprintf(f, "%d %d", INDEX(d), mode);
	fclose(f);
	return SUCCESS;
}
int nvmlDeviceGetUUID(device_t d, char *uuid, unsigned length)
{
	snprintf(uuid, length, is("badtext", INDEX(d)) ? "GPU-\xff\xfe%d" : "GPU-0000000%d", value("twin", INDEX(d), INDEX(d)));
	return SUCCESS;
}
// MIG devices of any GPU: those of the first profile come first, then a gap.
static char parts[7];

int nvmlDeviceGetName(device_t d, char *name, unsigned length)
{
	int a, b;
	if (d >= parts && d < parts + sizeof parts) {
		snprintf(name, length, "Tesla V100-SXM2-32GB MIG %s", control("profiles", &a, &b) == 2 && d - parts < a ? "1g.5gb" : "3g.20gb");
		return SUCCESS;
	}
	snprintf(name, length, "Tesla V100-SXM2-32GB");
	return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(device_t d, pci_t *pci) { return fill_pci(INDEX(d), pci); }
int nvmlDeviceGetMemoryInfo(device_t d, unsigned long long *memory)
{
	memory[2] = (unsigned long long)value("memory", INDEX(d), 0) << 20;
	memory[0] = 32768ULL << 20;
	memory[1] = memory[0] - memory[2];
	return SUCCESS;
}
int nvmlDeviceGetMaxPcieLinkGeneration(device_t d, unsigned *generation)
{
	*generation = value("best", INDEX(d), 3);
	return SUCCESS;
}
int nvmlDeviceGetCpuAffinity(device_t d, unsigned words, unsigned long *mask)
{
	memset(mask, 0, words * sizeof *mask);
	mask[0] = INDEX(d) < 4 ? 0xFFFFFUL : 0xFFFFFUL << 20;
	return SUCCESS;
}
int nvmlDeviceGetNvLinkState(device_t d, unsigned link, int *active)
{
	*active = peer(INDEX(d), link) >= 0;
	return SUCCESS;
}
int nvmlDeviceGetNvLinkVersion(device_t d, unsigned link, unsigned *version)
{
	(void)d, (void)link;
	int a, b;
	*version = control("version", &a, &b) >= 1 ? a : 2;
	return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t d, unsigned link, pci_t *pci)
{
	int other = peer(INDEX(d), link);
	return other < 0 ? NOT_SUPPORTED : fill_pci(other, pci);
}
int nvmlDeviceGetTopologyCommonAncestor(device_t d, device_t other, int *level)
{
	int a = INDEX(d), b = INDEX(other);
	*level = a / 4 != b / 4 ? 50 : a / 2 != b / 2 ? 30 : 10;
	return SUCCESS;
}

#ifndef OLD
int nvmlSystemGetCudaDriverVersion(int *version)
{
	*version = 12040;
	return SUCCESS;
}
int nvmlDeviceGetMemoryAffinity(device_t d, unsigned words, unsigned long *mask, unsigned scope)
{
	(void)scope;
	memset(mask, 0, words * sizeof *mask);
	mask[0] = INDEX(d) < 4 ? 1 : 2;
	return SUCCESS;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(device_t d, unsigned link, unsigned *type)
{
	(void)d, (void)link;
	*type = 0;
	return SUCCESS;
}
int nvmlDeviceGetP2PStatus(device_t d, device_t other, int what, int *status)
{
	if (what > 3)
		return NOT_SUPPORTED;
	*status = value("p2p", INDEX(d), value("p2p", INDEX(other), 0));
	if (what == 3)
		*status = value("atomics", INDEX(d), value("atomics", INDEX(other), *status));
	return SUCCESS;
}
int nvmlDeviceGetRemappedRows(device_t d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed)
{
	*correctable = *uncorrectable = 0;
	*pending = is("pending", INDEX(d));
	*failed = is("remap", INDEX(d));
	return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(device_t d, int type, int counter, unsigned long long *count)
{
	(void)type, (void)counter;
	*count = value("ecc", INDEX(d), 0);
	return SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(device_t d, int *pending)
{
	*pending = is("pages", INDEX(d));
	return SUCCESS;
}
int nvmlDeviceGetMaxPcieLinkWidth(device_t d, unsigned *width)
{
	(void)d;
	*width = 16;
	return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkWidth(device_t d, unsigned *width)
{
	*width = value("pcie", INDEX(d), 16);
	return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkGeneration(device_t d, unsigned *generation)
{
	*generation = value("slow", INDEX(d), 3);
	return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(device_t d, unsigned *percent)
{
	percent[0] = value("busy", INDEX(d), 0);
	percent[1] = 0;
	return SUCCESS;
}
int nvmlDeviceGetTemperature(device_t d, int sensor, unsigned *degrees)
{
	(void)sensor;
	*degrees = value("hot", INDEX(d), 40);
	return SUCCESS;
}
int nvmlDeviceGetTemperatureThreshold(device_t d, int threshold, unsigned *degrees)
{
	(void)d;
	*degrees = 90;
	return threshold == 1 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetCudaComputeCapability(device_t d, int *major, int *minor)
{
	(void)d;
	*major = 7, *minor = 0;
	return SUCCESS;
}
int nvmlDeviceGetMigMode(device_t d, unsigned *current, unsigned *pending)
{
	int a, b;
	if (control("mig", &a, &b) < 1)
		return NOT_SUPPORTED;
	*current = is("mig", INDEX(d));
	*pending = *current || is("migsoon", INDEX(d));
	return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t d, unsigned *count)
{
	(void)d;
	*count = sizeof parts;
	return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned index, device_t *part)
{
	int a, b;
	(void)d;
	if (control("profiles", &a, &b) != 2 || (int)index == a || (int)index > a + b)
		return NOT_FOUND;
	*part = parts + index;
	return SUCCESS;
}

typedef struct {
	unsigned version;
	unsigned char cluster[16];
	int status;
	unsigned clique;
	unsigned char state;
	unsigned mask;
} fabric_t;

int nvmlDeviceGetGpuFabricInfoV(device_t d, fabric_t *fabric)
{
	int a, b;
	fabric->status = SUCCESS;
	memset(fabric->cluster, 0, sizeof fabric->cluster);
	if (control("clique", &a, &b) >= 1) {
		memcpy(fabric->cluster, "\x7b\x96\x8a\x6d\xc8\xaa\x45\xe1\x9e\x07\xe1\xe5\x1b\xe9\x9c\x31", sizeof fabric->cluster);
		fabric->clique = a;
	}
	fabric->state = value("fabric", INDEX(d), 0);
	fabric->mask = control("mask", &a, &b) >= 1 ? a : 0;
	return SUCCESS;
}

typedef struct {
	unsigned fieldId, scopeId;
	long long timestamp, latency;
	int valueType, ret;
	unsigned value[2];
} field_t;

int nvmlDeviceGetFieldValues(device_t d, int count, field_t *values)
{
	for (int i = 0; i < count; i++) {
		int all_links = values[i].scopeId == ~0u;
		values[i].ret = SUCCESS;
		values[i].value[1] = 0;
		if (values[i].fieldId == 230)
			values[i].value[0] = value("recovery", INDEX(d), 0);
		else if (values[i].fieldId == 138 && all_links) // sent, in KiB
			values[i].value[0] = 2000 + INDEX(d);
		else if (values[i].fieldId == 139 && all_links) // received
			values[i].value[0] = 1000 + INDEX(d);
		else
			values[i].ret = NOT_SUPPORTED;
	}
	return SUCCESS;
}
int nvmlDeviceGetPowerUsage(device_t d, unsigned *milliwatts)
{
	(void)d;
	*milliwatts = 61500;
	return SUCCESS;
}
int nvmlDeviceGetClockInfo(device_t d, int clock, unsigned *megahertz)
{
	(void)d;
	*megahertz = 1380;
	return clock == 1 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t d, unsigned long long *reasons)
{
	*reasons = value("throttle", INDEX(d), 1); // 1: the GPU is idle
	return SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(device_t d, unsigned long long *millijoules)
{
	*millijoules = value("energy", INDEX(d), 5000);
	return SUCCESS;
}

typedef struct {
	unsigned pid;
	unsigned long long memory;
	unsigned gpuInstance, computeInstance;
} process_t;

// processes lists the one process that a control file names for a GPU.
static int processes(const char *name, int GPU, unsigned *count, process_t *list)
{
	int pid = value(name, GPU, 0);
	if (!pid) {
		*count = 0;
		return SUCCESS;
	}
	if (*count < 1) {
		*count = 1;
		return INSUFFICIENT_SIZE;
	}
	*count = 1;
	list[0] = (process_t){pid, 256ULL << 20, ~0u, ~0u};
	return SUCCESS;
}
// The version without a suffix is there to be asked for alone: its structure is a smaller one.
int nvmlDeviceGetComputeRunningProcesses(device_t d, unsigned *count, void *list)
{
	(void)d, (void)count, (void)list;
	return NOT_SUPPORTED;
}
int nvmlDeviceGetMPSComputeRunningProcesses(device_t d, unsigned *count, void *list)
{
	(void)d, (void)count, (void)list;
	return NOT_SUPPORTED;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned *count, process_t *list) { return processes("pid", INDEX(d), count, list); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t d, unsigned *count, process_t *list) { return processes("client", INDEX(d), count, list); }

typedef struct {
	unsigned pid;
	unsigned long long timestamp;
	unsigned sm, memory, encoder, decoder;
} sample_t;

// A process that does nothing has no samples but old ones, and a driver gives values now and then that are none.
int nvmlDeviceGetProcessUtilization(device_t d, sample_t *samples, unsigned *count, unsigned long long since)
{
	int pid = value("pid", INDEX(d), 0);
	unsigned long long at = (time(NULL) - value("quiet", INDEX(d), 0)) * 1000000ULL;
	if (!pid || at <= since)
		return NOT_FOUND;
	if (!samples || *count < 3) {
		*count = 3;
		return INSUFFICIENT_SIZE;
	}
	*count = 3;
	samples[0] = (sample_t){pid, at, 30, 0, 0, 0};
	samples[1] = (sample_t){pid, at - 10, 90, 0, 0, 0};
	samples[2] = (sample_t){pid, at + 10, 4000, 0, 0, 0};
	return SUCCESS;
}

typedef struct {
	device_t device;
	unsigned long long type, data;
	unsigned gpuInstance, computeInstance;
} event_t;

int nvmlEventSetCreate(char **set)
{
	*set = slots;
	return SUCCESS;
}
int nvmlEventSetFree(char *set)
{
	(void)set;
	return SUCCESS;
}
int nvmlDeviceRegisterEvents(device_t d, unsigned long long types, char *set)
{
	(void)d, (void)set;
	return types == 8 && access(CONTROL "/deaf", F_OK) ? SUCCESS : NOT_SUPPORTED;
}
int nvmlEventSetWait_v2(char *set, event_t *event, unsigned timeout)
{
	(void)set, (void)timeout;
	int GPU, number, code;
	if (control("broken", &code, &number) >= 1) {
		unlink(CONTROL "/broken");
		return code;
	}
	if (control("xid", &GPU, &number) != 2) {
		usleep(1000);
		return TIMEOUT;
	}
	unlink(CONTROL "/xid");
	*event = (event_t){slots + GPU, 8, number, ~0u, ~0u};
	return SUCCESS;
}
#endif
