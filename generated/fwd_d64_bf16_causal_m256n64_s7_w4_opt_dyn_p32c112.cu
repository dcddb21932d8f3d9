// fwd_d64_bf16_causal_m256n64_s7_w4_opt_dyn_p32c112
//   attention forward for sm_90a
//   head_dim 64, head_dim_v 64, bf16, mask causal
//   256 query rows x 64 keys a tile, 7 slots for K and V,
//   4 consumer warpgroups of 64 rows
//   softmax optimistic, schedule dynamic, row sums by add
// Made by: warploom emit fwd_d64_bf16_causal_m256n64_s7_w4_opt_dyn_p32c112
#include "params.h"
#include "barrier.cuh"
#include "epilogue.cuh"
#include "schedule.cuh"
#include "softmax.cuh"

constexpr int head_dim_v = 64;
constexpr int tile_n = 64; // keys
constexpr int stages = 7;
constexpr int consumers = 4;
constexpr int q_stages = 2; // buffers of 64 query rows that each of them has
constexpr int threads = 640;
constexpr int qk_panels = 1, v_panels = 1; // of 64 columns, 128 bytes a row
constexpr int slot_panels = 1;
constexpr int k_steps = 4; // of 16 columns, over head_dim 64
constexpr int o_stages = 1;
constexpr int s_regs = tile_n / 2, o_regs = head_dim_v / 2; // accumulators a thread holds
constexpr int clear_columns = tile_n > 64 ? tile_n - 64 : 0; // of a tile but the last: no mask
constexpr int q_panel_bytes = 64 * 128, slot_panel_bytes = tile_n * 128;
constexpr int q_step = qk_panels * q_panel_bytes / 16;
constexpr int slot_step = slot_panels * slot_panel_bytes / 16; // between descriptors of slots
constexpr int v_step = slot_step;
constexpr float sum_limit = 4294967296.0f; // P and its sums have the range for it

struct Smem {
    alignas(1024) u16 q[consumers][q_stages][qk_panels][64][64];
    alignas(1024) u16 ring[stages][slot_panels][tile_n][64];
    alignas(1024) u16 o[consumers][4][o_stages][16][64];
    u64 full[stages], empty[stages];
    u64 q_full[consumers][q_stages], q_empty[consumers][q_stages];
    Handout items;
};
static_assert(sizeof(Smem) == 156672, "the launch record says how much is there");

// A row tile of one (batch, head) pair: rows from `row` to `end`, and how many K/V tiles its last
// row sees.
struct Item {
    int pair, head, batch, row, end, tiles;
};

__device__ __forceinline__ void wgmma_qk(float (&d)[s_regs], u64 a, u64 b, int add);
__device__ __forceinline__ void wgmma_pv(float (&d)[o_regs], const u32 *a, u64 b);

__device__ __forceinline__ int first_row(const fwd_params &p, int tile)
{
    return (tile * p.tile_groups - min(tile, p.short_tiles)) * FWD_GROUP_ROWS;
}

__device__ __forceinline__ Item decode(const fwd_params &p, int index)
{
    Item item;
    // Longest rows first, across the heads of a section.
    const int per_section = p.section * p.row_tiles, section = index / per_section;
    const int rest = index - section * per_section;
    const int pairs = min(p.section, p.pairs - section * p.section);
    const int tiles_below = rest / pairs, tile = p.row_tiles - 1 - tiles_below;
    item.pair = section * p.section + rest - tiles_below * pairs;
    item.row = first_row(p, tile);
    item.end = first_row(p, tile + 1);
    const int last = min(item.end + p.seq_k - p.seq_q, p.seq_k);
    item.tiles = max(1, (last + tile_n - 1) / tile_n);
    item.batch = item.pair / p.heads;
    item.head = item.pair - item.batch * p.heads;
    return item;
}

__device__ __forceinline__ void load_tile(Smem &s, const TensorMap &map, int panels, BoxAt at,
                                          Ring &ring)
{
    mbarrier_wait(&s.empty[ring.slot], ring.parity ^ 1);
    mbarrier_arrive_expect(&s.full[ring.slot], panels * slot_panel_bytes);
    #pragma unroll
    for (int panel = 0; panel < panels; panel++) {
        at.column = panel * 64;
        tma_load(s.ring[ring.slot][panel], map, at, &s.full[ring.slot]);
    }
    advance(ring, stages);
}

__device__ __forceinline__ void load_item(Smem &s, const Item &item, int group,
                                          const TensorMap &k_map, const TensorMap &v_map,
                                          Ring &ring)
{
    BoxAt at = {0, 0, item.head / group, item.batch};
    for (int n = item.tiles - 1; n >= 0; n--) {
        at.row = n * tile_n;
        load_tile(s, k_map, qk_panels, at, ring);
        load_tile(s, v_map, v_panels, at, ring);
    }
}

// One thread: K and V tiles of every item, last keys first.
__device__ __forceinline__ void load_keys_values(Smem &s, const fwd_params &p,
                                                 const TensorMap &k_map, const TensorMap &v_map)
{
    const int items = p.pairs * p.row_tiles;
    Ring ring = {0, 0};
    int index = blockIdx.x;
    for (u32 turn = 0;; turn++) {
        hand_out(s.items, turn, index);
        if (index >= items)
            break;
        const int next = take(p.work);
        load_item(s, decode(p, index), p.group, k_map, v_map, ring);
        index = next;
    }
    leave(p.work);
}

// One thread of another warp: each consumer's 64 query rows.
__device__ __forceinline__ void load_queries(Smem &s, const fwd_params &p, const TensorMap &q_map)
{
    const int items = p.pairs * p.row_tiles;
    Ring rings[consumers] = {};
    for (u32 turn = 0;; turn++) {
        const int index = receive(s.items, turn);
        if (index >= items)
            break;
        const Item item = decode(p, index);
        #pragma unroll
        for (int group = 0; group < consumers; group++) {
            const int row = item.row + group * FWD_GROUP_ROWS;
            if (row >= item.end)
                break;
            Ring &at = rings[group];
            u64 *full = &s.q_full[group][at.slot];
            mbarrier_wait(&s.q_empty[group][at.slot], at.parity ^ 1);
            mbarrier_arrive_expect(full, qk_panels * q_panel_bytes);
            #pragma unroll
            for (int panel = 0; panel < qk_panels; panel++) {
                const BoxAt box = {panel * 64, row, item.head, item.batch};
                tma_load(s.q[group][at.slot][panel], q_map, box, full);
            }
            advance(at, q_stages);
        }
    }
}

// Issues scores = Q K^T as one group.
__device__ __forceinline__ void multiply_qk(float (&scores)[s_regs], u64 q, u64 k)
{
    #pragma unroll
    for (int step = 0; step < k_steps; step++)
        wgmma_qk(scores, q + (step / 4 * q_panel_bytes + step % 4 * 32) / 16,
                 k + (step / 4 * slot_panel_bytes + step % 4 * 32) / 16, step > 0);
    wgmma_commit();
}

// Issues out += P V as one group; 16 keys are 2048 bytes of a panel.
__device__ __forceinline__ void multiply_pv(float (&out)[o_regs], const u32 *probs, u64 v)
{
    #pragma unroll
    for (int step = 0; step < tile_n / 16; step++)
        wgmma_pv(out, probs + 4 * step, v + step * 2048 / 16);
    wgmma_commit();
}

// Keeps the old maximum, and with it the output, as long as the sums stay below the limit
// (NaN and infinity do not): no maximum, no shuffle, no rescaling. Else does the tile
// again.
__device__ __forceinline__ void next_softmax(const float (&scores)[s_regs],
                                             u32 (&probs)[s_regs / 2], float (&out)[o_regs],
                                             Rows &rows, float scale)
{
    float sum[2];
    exponentials_packed(scores, s_regs, probs, pack_bf16, scale, rows.offset, sum);
    if (__any_sync(full_warp, !(sum[0] < sum_limit) || !(sum[1] < sum_limit))) {
        float top[2], factor[2];
        row_maximum(scores, s_regs, top);
        raise_rows(rows, top, scale, factor);
        exponentials_packed(scores, s_regs, probs, pack_bf16, scale, rows.offset, sum);
        rescale(out, o_regs, factor);
        distrust_empty_rows(rows);
    }
    rows.sum[0] += sum[0];
    rows.sum[1] += sum[1];
}

// Divides by the row sums in place, and writes the log of the sums.
__device__ __forceinline__ void normalise(float (&out)[o_regs], Rows &rows,
                                          const fwd_params &p, int pair, int row)
{
    float inverse[2];
    finish_rows(rows);
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        const float sum = rows.sum[r];
        inverse[r] = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
        if (p.lse && threadIdx.x % 4 == 0 && row + 8 * r < p.seq_q)
            p.lse[(u64)pair * p.seq_q + row + 8 * r] =
                log2_of_row(sum, rows.offset[r]) * 0.69314718056f; // ln 2
    }
    rescale(out, o_regs, inverse);
}

__device__ __forceinline__ void init_barriers(Smem &s)
{
    for (int i = 0; i < stages; i++) {
        mbarrier_init(&s.full[i], 1);
        mbarrier_init(&s.empty[i], 4 * consumers); // one arrival a warp
    }
    for (int i = 0; i < consumers * q_stages; i++) {
        mbarrier_init(&s.q_full[0][i], 1);
        mbarrier_init(&s.q_empty[0][i], 4);
    }
    init_handout(s.items, 4 * consumers + 1);
    mbarrier_init_fence();
}

// A tile that other warpgroups of the block see and this one doesn't: K's slot and V's. The
// wait keeps the arrival in its lap.
__device__ __forceinline__ void skip_tile(Smem &s, Ring &ring, int lane)
{
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        mbarrier_wait(&s.full[ring.slot], ring.parity);
        mbarrier_arrive_by(lane == 0, &s.empty[ring.slot]);
        advance(ring, stages);
    }
}

// A consumer warpgroup: softmax(Q K^T) V of its 64 rows of every item.
__device__ __forceinline__ void consume(Smem &s, const fwd_params &p, const TensorMap &o_map,
                                        int group)
{
    const int items = p.pairs * p.row_tiles, lane = threadIdx.x % 32;
    const int warp = __shfl_sync(full_warp, threadIdx.x / 32 % 4, 0);
    const u64 q_tiles = swizzled_tile(s.q[group], 16), k_tiles = swizzled_tile(s.ring, 16);
    const u64 v_tiles = swizzled_tile(s.ring, slot_panel_bytes);
    const float scale = p.scale_log2;
    float scores[s_regs], out[o_regs];
    u32 probs[s_regs / 2];
    Ring ring = {0, 0};
    Ring q_ring = {0, 0};
    if (group == consumers - 1)
        named_arrive(1 + (group + 1) % consumers, 256);

    for (u32 turn = 0;; turn++) {
        int index = 0;
        if (lane == 0) // reads for its warp, so that its arrival covers every read
            index = receive(s.items, turn);
        index = __shfl_sync(full_warp, index, 0);
        if (index >= items)
            break;
        const Item item = decode(p, index);
        const int group_row = item.row + group * FWD_GROUP_ROWS;
        const int row = group_row + warp * 16 + lane / 4;
        // Row r sees keys below r + past, bottom-right aligned.
        const int past = p.seq_k - p.seq_q + 1, all_see = min(group_row + past, p.seq_k);
        const int seen = min(group_row + FWD_GROUP_ROWS - 1 + past, p.seq_k);
        const int tiles = group_row >= item.end ? 0
            : min(max(1, (seen + tile_n - 1) / tile_n), item.tiles);
        const int limit0 = min(row + past, p.seq_k) - lane % 4 * 2;
        const int limit1 = min(row + 8 + past, p.seq_k) - lane % 4 * 2;
        for (int n = item.tiles - 1; n >= tiles; n--) {
            skip_tile(s, ring, lane);
            if (n > 0) {
                named_sync(1 + group, 256);
                named_arrive(1 + (group + 1) % consumers, 256);
            }
        }
        if (tiles == 0)
            continue;
        mbarrier_wait(&s.q_full[group][q_ring.slot], q_ring.parity);
        const u64 q_tile = q_tiles + q_ring.slot * q_step;
        u64 *q_empty = &s.q_empty[group][q_ring.slot];
        advance(q_ring, q_stages);

        Rows rows;
        #pragma unroll
        for (int i = 0; i < o_regs; i++)
            out[i] = 0.0f;
        mbarrier_wait(&s.full[ring.slot], ring.parity);
        pin(scores, s_regs);
        wgmma_fence();
        multiply_qk(scores, q_tile, k_tiles + ring.slot * slot_step);
        wgmma_wait_all();
        pin(scores, s_regs);
        mbarrier_arrive_by(lane == 0, &s.empty[ring.slot]);
        advance(ring, stages);
        if (tiles == 1)
            mbarrier_arrive_by(lane == 0, q_empty);
        const int first_column = (tiles - 1) * tile_n;
        if (first_column + tile_n > all_see)
            mask_scores(scores, s_regs, limit0 - first_column, limit1 - first_column);
        start_rows(rows, scores, s_regs, scale);
        exponentials_packed(scores, s_regs, probs, pack_bf16, scale, rows.offset, rows.sum);
        distrust_empty_rows(rows);

        #pragma unroll 1
        for (int n = tiles - 2; n >= 0; n--) {
            const Ring v_at = ring;
            advance(ring, stages);
            const Ring k_at = ring;
            advance(ring, stages);
            mbarrier_wait(&s.full[v_at.slot], v_at.parity);
            named_sync(1 + group, 256);
            pin(scores, s_regs);
            pin(out, o_regs);
            wgmma_fence();
            multiply_pv(out, probs, v_tiles + v_at.slot * v_step);
            mbarrier_wait(&s.full[k_at.slot], k_at.parity);
            multiply_qk(scores, q_tile, k_tiles + k_at.slot * slot_step);
            named_arrive(1 + (group + 1) % consumers, 256);
            wgmma_wait_but_one();
            pin(out, o_regs);
            mbarrier_arrive_by(lane == 0, &s.empty[v_at.slot]);
            wgmma_wait_all();
            pin(scores, s_regs);
            mbarrier_arrive_by(lane == 0, &s.empty[k_at.slot]);
            if (n == 0)
                mbarrier_arrive_by(lane == 0, q_empty);
            // The first tile has seen the last of the group's 64 rows off; the columns that
            // all of them see are left out.
            if ((n + 1) * tile_n > all_see)
                mask_scores(scores + clear_columns / 2, s_regs - clear_columns / 2,
                            limit0 - n * tile_n - clear_columns,
                            limit1 - n * tile_n - clear_columns);
            next_softmax(scores, probs, out, rows, scale);
        }

        mbarrier_wait(&s.full[ring.slot], ring.parity);
        pin(out, o_regs);
        wgmma_fence();
        multiply_pv(out, probs, v_tiles + ring.slot * v_step);
        wgmma_wait_all();
        pin(out, o_regs);
        mbarrier_arrive_by(lane == 0, &s.empty[ring.slot]);
        advance(ring, stages);
        normalise(out, rows, p, item.pair, row);
        const BoxAt at = {0, group_row + warp * 16, item.head, item.batch};
        store_rows(out, head_dim_v, pack_bf16, s.o[group][warp], o_stages, o_map, at);
    }
    if (lane == 0)
        tma_store_wait();
}

extern "C" __global__ void __launch_bounds__(threads, 1)
fwd_d64_bf16_causal_m256n64_s7_w4_opt_dyn_p32c112(
    const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
    const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap o_map,
    const __grid_constant__ fwd_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    Smem &s = *reinterpret_cast<Smem *>(shared_memory);
    const int warpgroup = __shfl_sync(full_warp, threadIdx.x / 128, 0);

    if (threadIdx.x == 32) {
        tma_prefetch(q_map);
        tma_prefetch(k_map);
        tma_prefetch(v_map);
        tma_prefetch(o_map);
    }
    if (threadIdx.x == 0)
        init_barriers(s);
    __syncthreads();

    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (threadIdx.x == 0)
            load_keys_values(s, p, k_map, v_map);
        else if (threadIdx.x == 32)
            load_queries(s, p, q_map);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        consume(s, p, o_map, warpgroup - 1);
    }
}

// D (64 x 64) = or += A B^T, 16 columns; both in shared memory.
__device__ __forceinline__ void wgmma_qk(float (&d)[32], u64 a, u64 b, int add)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16\n"
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17,\n"
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, \n"
        "%32, %33, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
          "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
          "+f"(d[31])
        : "l"(a), "l"(b), "r"(add));
}

// D (64 x 64) += A B, 16 keys; A in registers, B's rows are keys.
__device__ __forceinline__ void wgmma_pv(float (&d)[32], const u32 *a, u64 b)
{
    asm volatile(
        "{ "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16\n"
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17,\n"
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, \n"
        "{%32, %33, %34, %35}, %36, 1, 1, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
          "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
          "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
