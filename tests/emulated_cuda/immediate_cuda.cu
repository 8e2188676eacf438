#include <cublasLt.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda_calibrate/cuda/attention.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"
#include "tests/emulated_cuda/immediate_cuda.hpp"

using spillway::emulated::machine;
namespace emulated = spillway::emulated;

struct CUstream_st {
  int gpu = 0;
  double now = 0.0;
  const std::uint32_t* gate = nullptr;  // the last one, and what opens it
  std::uint32_t generation = 0;
  std::int64_t waiting = 0;  // entries behind the gate
};
struct CUevent_st {
  int gpu = 0;
  double at = -1.0;  // not recorded yet
};
struct CUgraph_st {
  std::vector<CUevent_st*> nodes;  // null: a kernel
};
struct CUgraphExec_st {
  std::vector<CUevent_st*> nodes;
};

namespace {

std::recursive_mutex& all() {
  static std::recursive_mutex mutex;
  return mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;
thread_local int current = 0;
std::set<CUstream_st*>& streams() {
  static std::set<CUstream_st*> made;
  return made;
}

void need(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void enter(CUstream_st* stream, double seconds) {
  need(stream->gpu == current, "an operation on a stream of another GPU than the current one");
  stream->now += seconds;
  if (stream->gate != nullptr && *stream->gate < stream->generation) {
    machine().deepest = std::max(machine().deepest, ++stream->waiting);
  }
}

double copy_seconds(std::size_t bytes, double rate) { return emulated::kCopy + static_cast<double>(bytes) / rate; }

/// Reads a byte, so that the address sanitizer checks the address.
void touch(const void* at, std::int64_t offset) {
  volatile char seen = static_cast<const char*>(at)[offset];
  (void)seen;
}

template <typename T>
cudaError_t made(T** out, T* value) {
  const Lock lock(all());
  *out = value;
  ++machine().living;
  return cudaSuccess;
}
template <typename T>
cudaError_t ended(T* value) {
  const Lock lock(all());
  delete value;
  --machine().living;
  return cudaSuccess;
}
cudaError_t allocated(void** out, std::size_t bytes) {
  const Lock lock(all());
  *out = std::malloc(bytes);
  ++machine().living;
  return cudaSuccess;
}
cudaError_t freed(void* memory) {
  const Lock lock(all());
  std::free(memory);
  --machine().living;
  return cudaSuccess;
}

struct Layout {
  std::int64_t bytes = 0;
};

}  // namespace

emulated::Machine& emulated::machine() {
  static Machine one;
  return one;
}

void emulated::occupy(cudaStream_t stream, double seconds) {
  const Lock lock(all());
  enter(stream, seconds);
}

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().count_status == cudaSuccess ? machine().gpus : 0;
  return machine().count_status;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().gpus) return cudaErrorInvalidDevice;
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an error";
}
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfATest"; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 12080;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().driver;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int) {
  std::strncpy(text, "ffff:ff:00.0", static_cast<std::size_t>(length));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = machine().capability / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = machine().capability % 10;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "GPU of a test");
  properties->totalGlobalMem = machine().free_bytes;
  properties->multiProcessorCount = 4;
  properties->l2CacheSize = 1 << 20;
  properties->major = machine().capability / 10;
  properties->minor = machine().capability % 10;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = machine().peers ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = machine().free_bytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) { return allocated(memory, bytes); }
cudaError_t cudaFree(void* memory) { return freed(memory); }
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) { return allocated(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return freed(memory); }
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) {
  const Lock lock(all());
  ++machine().living;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void*) {
  const Lock lock(all());
  --machine().living;
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(all());
  const cudaError_t status = std::exchange(machine().copy_status, cudaSuccess);
  if (status != cudaSuccess) return status;
  enter(stream, copy_seconds(bytes, kind == cudaMemcpyHostToDevice ? emulated::kToGpu : emulated::kToHost));
  if (kind == cudaMemcpyHostToDevice) {
    const auto* first = static_cast<const unsigned char*>(from);
    ++machine().copies_to_gpu;
    machine().last_copied_bytes = static_cast<std::int64_t>(bytes);
    machine().last_copied_sum = std::accumulate(first, first + bytes, std::int64_t{0});
  }
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  const Lock lock(all());
  enter(stream, copy_seconds(bytes, emulated::kPeer));
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* bytes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* first, std::size_t sets,
                                 cudaStream_t stream) {
#elif CUDART_VERSION >= 12080
cudaError_t cudaMemcpyBatchAsync(void** to, void** from, std::size_t* bytes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* first, std::size_t sets, std::size_t*,
                                 cudaStream_t stream) {
#endif
#if CUDART_VERSION >= 12080
  const Lock lock(all());
  if (sets != 1 || *first != 0 || attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    return cudaErrorInvalidValue;
  }
  for (std::size_t i = 0; i < count; ++i) {
    enter(stream, emulated::kBatchedCopy + static_cast<double>(bytes[i]) / emulated::kToGpu);
    std::memcpy(to[i], from[i], bytes[i]);
  }
  return cudaSuccess;
}
#endif

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const cudaError_t status = made(stream, new CUstream_st{.gpu = current});
  streams().insert(*stream);
  return status;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  streams().erase(stream);
  return ended(stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(all());
  need(event->at >= 0.0, "a stream waits for an event that nobody has recorded");
  enter(stream, std::max(0.0, event->at - stream->now));
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  enter(stream, 0.0);
  function(data);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return made(event, new CUevent_st{.gpu = current});
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return ended(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(all());
  need(event->gpu == stream->gpu, "an event is recorded on another GPU than its own");
  enter(stream, 0.0);
  event->at = stream->now;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Lock lock(all());
  need(start->gpu == end->gpu, "events of two GPUs are compared");
  need(start->at >= 0.0 && end->at >= 0.0, "an event is read that nobody has recorded");
  *milliseconds = static_cast<float>((end->at - start->at) * 1e3);
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) { return made(graph, new CUgraph_st); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return ended(graph); }
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, std::size_t,
                                   const cudaKernelNodeParams* parameters) {
  if (parameters->func == nullptr) return cudaErrorInvalidValue;
  graph->nodes.push_back(nullptr);
  *node = reinterpret_cast<cudaGraphNode_t>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, std::size_t,
                                        cudaEvent_t event) {
  graph->nodes.push_back(event);
  *node = reinterpret_cast<cudaGraphNode_t>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return made(exec, new CUgraphExec_st{graph->nodes});
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return ended(exec); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Lock lock(all());
  enter(stream, emulated::kGraph);
  for (CUevent_st* event : exec->nodes) {
    if (event == nullptr) {
      stream->now += emulated::kGraphNode;
    } else {
      event->at = stream->now;
    }
  }
  return cudaSuccess;
}

std::size_t cublasLtGetVersion() { return 130002; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "a status"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return static_cast<cublasStatus_t>(allocated(reinterpret_cast<void**>(handle), 1));
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return static_cast<cublasStatus_t>(freed(handle)); }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmul, cublasComputeType_t, cudaDataType_t) {
  return static_cast<cublasStatus_t>(allocated(reinterpret_cast<void**>(matmul), 1));
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmul) {
  return static_cast<cublasStatus_t>(freed(matmul));
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                              std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  const std::int64_t width = type == CUDA_R_8F_E4M3 ? 1 : 2;
  const std::int64_t numbers = stride * (static_cast<std::int64_t>(columns) - 1) + static_cast<std::int64_t>(rows);
  Layout* one = nullptr;
  (void)made(&one, new Layout{numbers * width});
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(one);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return static_cast<cublasStatus_t>(ended(reinterpret_cast<Layout*>(layout)));
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return static_cast<cublasStatus_t>(allocated(reinterpret_cast<void**>(preference), 1));
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return static_cast<cublasStatus_t>(freed(preference));
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = std::min(wanted, static_cast<int>(std::size(emulated::kGemm)));
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<std::uint64_t>(i);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void*, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*,
                              std::size_t, cudaStream_t stream) {
  const Lock lock(all());
  touch(a, reinterpret_cast<Layout*>(a_layout)->bytes - 1);
  touch(b, reinterpret_cast<Layout*>(b_layout)->bytes - 1);
  touch(d, reinterpret_cast<Layout*>(d_layout)->bytes - 1);
  enter(stream, emulated::kGemm[algorithm->data[0]]);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

namespace spillway::calibrate::gpu {

void enqueue_gate(const std::uint32_t* open, std::uint32_t* gave_up, std::uint32_t generation, cudaStream_t stream) {
  const Lock lock(all());
  need(stream->gpu == current, "a gate on a stream of another GPU than the current one");
  if (*open >= generation) return;
  ++machine().gates;
  if (machine().gates_give_up) *gave_up = generation;
  // All streams at the gate continue together, after all earlier work of any stream.
  static std::pair<const std::uint32_t*, std::uint32_t> last;
  static double start = 0.0;
  if (std::exchange(last, {open, generation}) != std::pair(open, generation)) {
    for (const CUstream_st* one : streams()) start = std::max(start, one->now);
  }
  stream->now = start;
  stream->gate = open;
  stream->generation = generation;
  stream->waiting = 0;
}

void enqueue_empty(cudaStream_t stream) {
  const Lock lock(all());
  enter(stream, emulated::kEmptyKernel);
}
const void* empty_kernel() { return &machine(); }

void enqueue_fill(void* to, std::int64_t count, Number number, std::uint64_t seed, cudaStream_t stream) {
  const Lock lock(all());
  enter(stream, 0.0);
  if (number == Number::bf16 || number == Number::fp16) {
    // Any sign and fraction, 0.5 <= |x| < 1.
    const std::uint32_t half = number == Number::bf16 ? 0x3F00 : 0x3800;
    const std::uint32_t any = number == Number::bf16 ? 0x807F : 0x83FF;
    std::minstd_rand random(static_cast<std::uint32_t>(seed));
    auto* bits = static_cast<std::uint16_t*>(to);
    for (std::int64_t i = 0; i < count; ++i) bits[i] = static_cast<std::uint16_t>(half | ((random() >> 8U) & any));
    return;
  }
  std::memset(to, 1, static_cast<std::size_t>(count * (number == Number::fp32 ? 4 : 1)));
}

void enqueue_blocks(const BlockCopy& copy, std::int64_t ctas, cudaStream_t stream) {
  const Lock lock(all());
  need(ctas > 0, "a kernel without thread blocks");
  for (std::int64_t i = 0; i < copy.blocks; ++i) {
    std::memcpy(
        static_cast<std::byte*>(copy.target) + (copy.to == nullptr ? i : copy.to[i]) * copy.block_bytes,
        static_cast<const std::byte*>(copy.source) + (copy.from == nullptr ? i : copy.from[i]) * copy.block_bytes,
        static_cast<std::size_t>(copy.block_bytes));
  }
  enter(stream, emulated::kBlockKernel + static_cast<double>(copy.blocks * copy.block_bytes) / emulated::kByKernel);
}

void enqueue_elementwise(const ElementwiseCall& call, cudaStream_t stream) {
  const Lock lock(all());
  const std::int64_t bytes = call.tokens * call.width * 2;
  touch(call.x, (call.kind == ElementwiseKind::silu_mul ? 2 : 1) * bytes - 1);
  touch(call.y, bytes - 1);
  if (call.kind == ElementwiseKind::rms_norm) touch(call.aux, call.width * 2 - 1);
  if (call.kind == ElementwiseKind::rope) touch(call.aux, call.tokens * 64 * 2 * 4 - 1);
  enter(stream, emulated::kElementwise);
}

void enqueue_attention(const AttentionCall& call, std::int64_t size, Number, cudaStream_t stream) {
  const Lock lock(all());
  const auto read_pages = [&](std::int32_t sequence, std::int64_t first, std::int64_t end) {
    for (std::int64_t page = first / kPageSize; page * kPageSize < end; ++page) {
      const std::int64_t entry = call.page_first[sequence] + page;
      need(entry < call.page_first[sequence + 1], "a page of the next sequence is read");
      const std::int64_t last = (std::int64_t{call.pages[entry]} + 1) * call.kv_heads * kPageSize * size * 2 - 1;
      touch(call.keys, last);
      touch(call.values, last);
    }
  };
  for (std::int32_t i = 0; i < call.decode_items; ++i) {
    const DecodeItem& item = call.decode[i];
    read_pages(item.sequence, item.begin, item.end);
    if (item.partial >= 0) touch(call.partial_logs, (std::int64_t{item.partial} + 1) * call.query_heads * 4 - 1);
  }
  for (std::int32_t i = 0; i < call.prefill_items; ++i) {
    const std::int32_t sequence = call.prefill[i].sequence;
    read_pages(sequence, 0, call.kv_tokens[sequence]);
    const std::int64_t tokens = call.query_first[sequence] + call.query_tokens[sequence];
    touch(call.queries, tokens * call.query_heads * size * 2 - 1);
    touch(call.results, tokens * call.query_heads * size * 2 - 1);
  }
  enter(stream, emulated::kAttention);
  if (call.combine_items > 0) enter(stream, emulated::kCombine);
}

}  // namespace spillway::calibrate::gpu
