// A stand-in for libnvidia-ml.so.1 with two devices. Defined by who compiles it:
//   INIT    what nvmlInit_v2 returns
//   GPUS    how many devices there are
//   LOST    the index of a device that fell off the bus
//   LACKS_COUNT, LACKS_UTILIZATION   functions that are not there
#include <stdint.h>
#include <stdio.h>

#ifndef INIT
#define INIT 0
#endif
#ifndef GPUS
#define GPUS 2
#endif
#ifndef LOST
#define LOST -1
#endif

static int started;
static int devices[GPUS + 1];

int nvmlInit_v2(void) {
	if (INIT == 0) started++;
	return INIT;
}

int nvmlShutdown(void) {
	started--;
	return 0;
}

const char *nvmlErrorString(int code) {
	switch (code) {
	case 1: return "Uninitialized";
	case 9: return "Driver Not Loaded";
	case 15: return "GPU is lost";
	case 18: return "Driver/library version mismatch";
	default: return "Unknown Error";
	}
}

#ifndef LACKS_COUNT
int nvmlDeviceGetCount_v2(unsigned *count) {
	if (started != 1) return 1;
	*count = GPUS;
	return 0;
}
#endif

int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **device) {
	if (started != 1) return 1;
	if ((int)index == LOST) return 15;
	devices[index] = index;
	*device = &devices[index];
	return 0;
}

int nvmlDeviceGetName(int *device, char *name, unsigned length) {
	snprintf(name, length, "Fake GPU %d", *device);
	return 0;
}

#ifndef LACKS_UTILIZATION
int nvmlDeviceGetUtilizationRates(int *device, struct { unsigned gpu, memory; } *rates) {
	rates->gpu = 25 + 50 * *device;
	rates->memory = 1;
	return 0;
}
#endif

int nvmlDeviceGetMemoryInfo(int *device, struct { uint64_t total, free, used; } *memory) {
	memory->total = 24ull << 30;
	memory->used = (6ull << 30) * (*device + 1);
	memory->free = memory->total - memory->used;
	return 0;
}

int nvmlDeviceGetTemperature(int *device, unsigned sensor, unsigned *celsius) {
	if (sensor != 0) return 2;
	if (*device == 1) return 3; // not supported
	*celsius = 61;
	return 0;
}
