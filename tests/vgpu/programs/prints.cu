// printf in a kernel: each line once from every lane, then what only one thread prints.
#include <cstdio>

__global__ void print(long long wide, double real, const char* none) {
  const int t = threadIdx.x;
  printf("%d|%5d|%-5d|%05d|%+d|% d|%i\n", -t, t, t, t, t, t, t - 16);
  if (t) return;
  printf("%u|%x|%X|%#x|%o|%#o|%08X\n", 4000000000u, 48879, 48879, 48879, 8, 8, 48879);
  printf("%lld|%llu|%lx|%zu|%hd|%hhu\n", wide, 18446744073709551615ull, 1ul << 40, sizeof(int),
         70000, 300);
  printf("%f|%5.2f|%-9.3f|%+.1f|%e|%.3E|%g|%G\n", real, real, real, real, real, real, real, 1e-9);
  printf("%g|%f|%a|%.0f\n", 1.0 / 0.0, -1.0 / 0.0, 1.0, 2.5);
  printf("%c%c|%s|%10s|%-10s|%.2s|%%|100%%\n", 'o', 'k', "text", "right", "left", "cut");
  printf("%p|%p\n", reinterpret_cast<void*>(0x1234), none);
  printf("no arguments\n");
  printf("%.600d\n", 7);
}

int main() {
  print<<<1, 32>>>(-1234567890123ll, 3.14159265, nullptr);
  return cudaDeviceSynchronize();
}
