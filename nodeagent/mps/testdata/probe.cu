// A program that takes GPU memory in steps of 64 MiB up to an amount in MiB, and then computes for some seconds:
//   probe MIB SECONDS
// Build: nvcc -O2 -arch=native -o probe probe.cu
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void burn(float *p, int n)
{
	float x = threadIdx.x;
	for (int i = 0; i < n; i++)
		x = x * 1.0001f + 0.5f;
	if (x == 12345.f)
		*p = x;
}

static int fails(const char *what, cudaError_t e)
{
	printf("%s: %s\n", what, cudaGetErrorString(e));
	return 1;
}

int main(int, char **v)
{
	setvbuf(stdout, nullptr, _IOLBF, 0);
	float *p;
	cudaError_t e = cudaMalloc(&p, 4);
	if (e)
		return fails("start", e);
	int got = 0;
	for (void *q; got < atoi(v[1]) && !(e = cudaMalloc(&q, 64 << 20)); got += 64)
		;
	printf("allocated %d MiB: %s\n", got, cudaGetErrorString(e));
	cudaGetLastError();
	auto begin = std::chrono::steady_clock::now();
	double took = 0;
	long kernels = 0;
	for (printf("running\n"); took < atof(v[2]); kernels += 20) {
		for (int i = 0; i < 20; i++)
			burn<<<2640, 1024>>>(p, 20000);
		if ((e = cudaDeviceSynchronize()))
			return fails("kernel", e);
		took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
	}
	printf("kernels/s %.1f\n", kernels / took);
	return 0;
}
