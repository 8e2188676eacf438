// A libnvidia-ml.so.1 with one GPU, for tests. The names and types are NVIDIA's.
#include <cstring>

namespace {

// nvmlFieldValue_t
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency;
  int type;
  int status;
  unsigned long long value;
};

int device = 0;
bool instant = true;  // whether the power now is known

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming)

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** handle) {
  // The second GPU knows no power now.
  instant = std::strcmp(bus_id, "0000:02:00.0") != 0;
  if (instant && std::strcmp(bus_id, "0000:01:00.0") != 0) return 6;  // not found
  *handle = &device;
  return 0;
}
int nvmlDeviceGetClockInfo(void* /*handle*/, int type, unsigned* clock) {
  *clock = type == 1 ? 1410 : 9000;
  return 0;
}
int nvmlDeviceGetUUID(void* /*handle*/, char* text, unsigned length) {
  if (length < 96) return 7;  // insufficient size
  std::strcpy(text, "GPU-5e11e0a7-0000-0000-0000-000000000001");
  return 0;
}
int nvmlDeviceGetTemperature(void* /*handle*/, int /*sensor*/, unsigned* celsius) {
  *celsius = 65;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* /*handle*/, unsigned long long* reasons) {
  *reasons = 4;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* /*handle*/, unsigned* milliwatts) {
  *milliwatts = 250'000;
  return 0;
}
int nvmlDeviceGetFieldValues(void* /*handle*/, int count, FieldValue* values) {
  if (count != 1 || values->field != 186) return 2;
  values->status = instant ? 0 : 3;
  values->type = 1;
  values->value = 0xdead'0000'0000ULL << 16U | 700'500ULL;  // the upper half is not a part of the number
  return 0;
}
// NOLINTEND(readability-identifier-naming)
}
