// Parameters of every size, written where the host can look at them.
struct Mixed {
  int first;
  double second;
  char third[5];
};
struct Large {
  int values[1500];
};

extern "C" __global__ void sizes(signed char a, short b, int c, long long d, float e, double f, Mixed g,
                                 unsigned long long h, double *out) {
  out[0] = a, out[1] = b, out[2] = c, out[3] = (double)d, out[4] = e, out[5] = f;
  out[6] = g.first, out[7] = g.second, out[8] = g.third[0] + g.third[4], out[9] = (double)h;
}

extern "C" __global__ void large(Large values, long long *out) {
  long long sum = 0;
  for (int value : values.values) sum += value;
  *out = sum;
}

extern "C" __global__ void nothing() {}
