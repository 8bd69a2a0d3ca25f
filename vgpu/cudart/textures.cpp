// What programs with textures and surfaces need to start: the objects themselves are not supported
// (missing.cpp says so).
extern "C" {

struct vgpu_channel_format {
  int x, y, z, w;
  int kind;
};

// The one function of the runtime that returns a structure.
vgpu_channel_format cudaCreateChannelDesc(int x, int y, int z, int w, int kind) {
  return {x, y, z, w, kind};
}

}  // extern "C"
