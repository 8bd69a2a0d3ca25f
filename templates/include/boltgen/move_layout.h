// NCHW to NHWC and back: transposes of one matrix (channels, pixels) for each image.

#pragma once

#include "boltgen/abi.h"
#include "boltgen/move_vector.h"

namespace boltgen {

/// How a warp walks an NCHW tensor: vectors of `kLength` pixels, so that one access of the warp is
/// 32 pixels of each of `kLength` pairs of channels.
template <int kLength>
struct PixelWalk {
  static constexpr int kLanesPerRow = 32 / kLength;

  int pixel;  ///< of the access, 0 to 31
  int pair;   ///< of channels, 0 to kLength - 1

  __device__ PixelWalk()
      : pixel(int(threadIdx.x) % kLanesPerRow * kLength),
        pair(int(threadIdx.x) % 32 / kLanesPerRow) {}
};

/// (n, c, pixels) of `In` to (n, pixels, c) of `Out`, or the other way, through `Narrow`.
///
/// A block moves 64 pixels of 64 channels. The tile in shared memory is one of words, each the two
/// channels of a pair, in rows of 33: every access below then has its 32 words in 32 banks.
/// `kPixelVector` and `kChannelVector` are the elements per global access on either side.
template <typename Narrow, typename Pixels, int kPixelVector, int kChannelVector>
struct Transpose {
  static constexpr int kPixels = 64, kPairs = 32, kPitch = kPairs + 1;
  static constexpr int kWarps = kMoveThreads / 32;
  using Tile = uint32_t[kPixels][kPitch];

  static dim3 grid(boltgen_move_args const& args) {
    int const c = args.source_c > args.target_c ? args.source_c : args.target_c;
    return dim3((args.pixels + kPixels - 1) / kPixels, (c + 2 * kPairs - 1) / (2 * kPairs), args.n);
  }

  __device__ static void to_nhwc(boltgen_move_args const& args) {
    __shared__ Tile tile;
    Pixels const* const source = static_cast<Pixels const*>(args.source);
    for_pixel_vectors(args, [&](int pixel, int channel, int64_t begin) {
      PixelVector low, high;
      if (begin + pixel < args.pixels) {
        low = load_pixels(args, source, begin + pixel, channel);
        high = load_pixels(args, source, begin + pixel, channel + 1);
      }
#pragma unroll
      for (int i = 0; i < kPixelVector; ++i) {
        tile[pixel + i][channel_in_tile(channel) / 2] =
            uint32_t(narrowed<Narrow>(low.get(i))) | uint32_t(narrowed<Narrow>(high.get(i))) << 16;
      }
    });
    __syncthreads();
    Narrow* const target = static_cast<Narrow*>(args.target);
    for_channel_vectors(args, args.target_c, [&](int pixel, int channel, int64_t row) {
      Narrow* const to = target + row * args.target_c + channel;
      if constexpr (kChannelVector == 1) {
        *to = half_of(tile[pixel], channel);
      } else {
        ChannelVector vector;
#pragma unroll
        for (int i = 0; i < kChannelVector / 2; ++i) {
          vector.words[i] = tile[pixel][channel_in_tile(channel) / 2 + i];
        }
        vector.store_global(to);
      }
    });
  }

  __device__ static void to_nchw(boltgen_move_args const& args) {
    __shared__ Tile tile;
    Narrow const* const source = static_cast<Narrow const*>(args.source);
    // All of the tile's channels: those that the source does not have are zero.
    for_channel_vectors(args, INT32_MAX, [&](int pixel, int channel, int64_t row) {
      Narrow const* const from = source + row * args.source_c + channel;
      bool const inside = channel < args.source_c;
      if constexpr (kChannelVector == 1) {
        half_of(tile[pixel], channel) = inside ? *from : Narrow(0);
      } else {
        ChannelVector vector;
        if (inside) {
          vector = ChannelVector::load(from);
        }
#pragma unroll
        for (int i = 0; i < kChannelVector / 2; ++i) {
          tile[pixel][channel_in_tile(channel) / 2 + i] = vector.words[i];
        }
      }
    });
    __syncthreads();
    Pixels* const target = static_cast<Pixels*>(args.target);
    for_pixel_vectors(args, [&](int pixel, int channel, int64_t begin) {
      if (begin + pixel >= args.pixels) {
        return;
      }
      PixelVector low, high;
#pragma unroll
      for (int i = 0; i < kPixelVector; ++i) {
        uint32_t const pair = tile[pixel + i][channel_in_tile(channel) / 2];
        low.set(i, widened<Pixels>(Narrow(pair)));
        high.set(i, widened<Pixels>(Narrow(pair >> 16)));
      }
      store_pixels(args, target, begin + pixel, channel, low);
      store_pixels(args, target, begin + pixel, channel + 1, high);
    });
  }

 private:
  using PixelVector = Vector<Pixels, kPixelVector>;
  using ChannelVector = Vector<Narrow, kChannelVector>;

  __device__ static Narrow& half_of(uint32_t* row, int channel) {
    return reinterpret_cast<Narrow*>(row)[channel_in_tile(channel)];
  }

  __device__ static int channel_in_tile(int channel) { return channel % (2 * kPairs); }

  /// Calls `body(pixel in the tile, even channel, first pixel of the tile)`.
  template <typename Body>
  __device__ static void for_pixel_vectors(boltgen_move_args const& args, Body const& body) {
    PixelWalk<kPixelVector> const walk;
    int const warp = int(threadIdx.x) / 32;
    // Accesses of a warp: two halves of the tile's pixels, kPixelVector pairs of channels at once.
    constexpr int kAccesses = 2 * kPairs / kPixelVector;
    for (int access = warp; access < kAccesses; access += kWarps) {
      int const pixel = access % 2 * 32 + walk.pixel;
      int const pair = access / 2 * kPixelVector + walk.pair;
      body(pixel, 2 * (int(blockIdx.y) * kPairs + pair), int64_t(blockIdx.x) * kPixels);
    }
  }

  /// Calls `body(pixel in the tile, channel, row of the NHWC tensor)` for channels below `limit`.
  template <typename Body>
  __device__ static void for_channel_vectors(boltgen_move_args const& args, int limit,
                                             Body const& body) {
    constexpr int kVectors = 2 * kPairs / kChannelVector;
    for (int access = int(threadIdx.x); access < kPixels * kVectors; access += kMoveThreads) {
      int const pixel = access / kVectors;
      int const channel = int(blockIdx.y) * 2 * kPairs + access % kVectors * kChannelVector;
      int64_t const column = int64_t(blockIdx.x) * kPixels + pixel;
      if (column < args.pixels && channel < limit) {
        body(pixel, channel, int64_t(blockIdx.z) * args.pixels + column);
      }
    }
  }

  __device__ static PixelVector load_pixels(boltgen_move_args const& args, Pixels const* source,
                                            int64_t pixel, int channel) {
    if (channel >= args.source_c) {
      return PixelVector();
    }
    int64_t const plane = int64_t(blockIdx.z) * args.source_c + channel;
    return PixelVector::load(source + plane * args.pixels + pixel);
  }

  __device__ static void store_pixels(boltgen_move_args const& args, Pixels* target, int64_t pixel,
                                      int channel, PixelVector const& vector) {
    if (channel < args.target_c) {
      int64_t const plane = int64_t(blockIdx.z) * args.target_c + channel;
      vector.store_global(target + plane * args.pixels + pixel);
    }
  }
};

template <typename Narrow, typename Pixels, int kPixelVector, int kChannelVector>
struct TransposeToNhwc : Transpose<Narrow, Pixels, kPixelVector, kChannelVector> {
  __device__ static void run(boltgen_move_args const& args) { TransposeToNhwc::to_nhwc(args); }
};

template <typename Narrow, typename Pixels, int kPixelVector, int kChannelVector>
struct TransposeToNchw : Transpose<Narrow, Pixels, kPixelVector, kChannelVector> {
  __device__ static void run(boltgen_move_args const& args) { TransposeToNchw::to_nchw(args); }
};

/// (n, c, pixels) to (n, pixels, kChannels), for the three or four channels of an image: a thread
/// makes `kPixels` pixels in one access, so that neighbours read and write neighbours without
/// shared memory.
template <typename Narrow, typename In, int kChannels, int kPixels>
struct Interleave {
  static dim3 grid(boltgen_move_args const& args) {
    int const threads = args.pixels / kPixels;
    return dim3((threads + kMoveThreads - 1) / kMoveThreads, 1, args.n);
  }

  __device__ static void run(boltgen_move_args const& args) {
    int64_t const pixel = (int64_t(blockIdx.x) * kMoveThreads + threadIdx.x) * kPixels;
    if (pixel >= args.pixels) {
      return;
    }
    Vector<Narrow, kChannels * kPixels> made;
    In const* const source =
        static_cast<In const*>(args.source) + int64_t(blockIdx.z) * args.source_c * args.pixels;
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
      if (channel < args.source_c) {
        auto const plane = source + channel * int64_t(args.pixels);
        auto const vector = Vector<In, kPixels>::load(plane + pixel);
#pragma unroll
        for (int i = 0; i < kPixels; ++i) {
          made.set(i * kChannels + channel, narrowed<Narrow>(vector.get(i)));
        }
      }
    }
    made.store_global(static_cast<Narrow*>(args.target) +
                      (int64_t(blockIdx.z) * args.pixels + pixel) * kChannels);
  }
};

}  // namespace boltgen
