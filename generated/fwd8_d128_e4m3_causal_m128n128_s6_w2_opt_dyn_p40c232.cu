// fwd8_d128_e4m3_causal_m128n128_s6_w2_opt_dyn_p40c232
//   attention forward of 8-bit tensors for sm_90a
//   head_dim 128, head_dim_v 128, e4m3 to bf16, mask causal
//   128 query rows x 128 keys a tile, 6 slots for K and V,
//   2 consumer warpgroups of 64 rows
//   softmax optimistic, schedule dynamic, levels of sums: 2
// Made by: warploom emit fwd8_d128_e4m3_causal_m128n128_s6_w2_opt_dyn_p40c232
#include "params.h"
#include "barrier.cuh"
#include "e4m3.cuh"
#include "epilogue.cuh"
#include "schedule.cuh"
#include "softmax.cuh"

constexpr int head_dim_v = 128;
constexpr int tile_n = 128; // keys
constexpr int stages = 6;
constexpr int consumers = 2;
constexpr int q_stages = 2; // buffers of 64 query rows that each of them has
constexpr int threads = 384;
constexpr int qk_span = 128, qk_panels = 1; // bytes of a panel's row
constexpr int v_span = 128, v_panels = 1; // the same of V^T, whose rows are keys
constexpr int slot_bytes = 16384;
constexpr int k_steps = 4; // of 32 columns, over head_dim 128
constexpr int o_stages = 2;
constexpr int s_regs = tile_n / 2, o_regs = head_dim_v / 2; // accumulators a thread holds
constexpr int part_regs = 64; // of them, that one multiplication makes
constexpr int clear_columns = tile_n > 64 ? tile_n - 64 : 0; // of a tile but the last: no mask
constexpr int q_panel_bytes = 64 * qk_span, k_panel_bytes = tile_n * qk_span;
constexpr int v_panel_bytes = head_dim_v * v_span;
constexpr int q_step = qk_panels * q_panel_bytes / 16;
constexpr int slot_step = slot_bytes / 16, v_step = slot_step; // between descriptors of slots
constexpr float p_steps = -5.0f; // P of the maximum is 2^-p_steps

struct Smem {
    alignas(1024) unsigned char q[consumers][q_stages][qk_panels][q_panel_bytes];
    alignas(1024) unsigned char ring[stages][slot_bytes];
    alignas(1024) u16 o[consumers][4][o_stages][16][64];
    u64 full[stages], empty[stages];
    u64 q_full[consumers][q_stages], q_empty[consumers][q_stages];
    Handout items;
};
static_assert(sizeof(Smem) == 164864, "the launch record says how much is there");

// A row tile of one (batch, head) pair: rows from `row` to `end`, and how many K/V tiles its last
// row sees.
struct Item {
    int pair, head, batch, row, end, tiles;
};

__device__ __forceinline__ void wgmma_qk(float (&d)[s_regs], u64 a, u64 b, int add);
__device__ __forceinline__ void wgmma_pv(float (&d)[part_regs], const u32 *a, u64 b, int add);

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

// Panels of K's columns, or of V's keys, `span` bytes a row.
__device__ __forceinline__ void load_tile(Smem &s, const TensorMap &map, int panels, int bytes,
                                          int span, BoxAt at, Ring &ring)
{
    mbarrier_wait(&s.empty[ring.slot], ring.parity ^ 1);
    mbarrier_arrive_expect(&s.full[ring.slot], panels * bytes);
    #pragma unroll
    for (int panel = 0; panel < panels; panel++) {
        tma_load(s.ring[ring.slot] + panel * bytes, map, at, &s.full[ring.slot]);
        at.column += span;
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
        const BoxAt keys = {at.row, 0, at.head, at.batch};
        load_tile(s, k_map, qk_panels, k_panel_bytes, qk_span, at, ring);
        load_tile(s, v_map, v_panels, v_panel_bytes, v_span, keys, ring);
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
                const BoxAt box = {panel * 128, row, item.head, item.batch};
                tma_load(s.q[group][at.slot][panel], q_map, box, full);
            }
            advance(at, q_stages);
        }
    }
}

// Issues scores = Q K^T as one group.
__device__ __forceinline__ void multiply_qk(float (&scores)[s_regs], u64 q, u64 k)
{
    constexpr int steps = qk_span / 32; // of a panel
    #pragma unroll
    for (int step = 0; step < k_steps; step++)
        wgmma_qk(scores, q + (step / steps * q_panel_bytes + step % steps * 32) / 16,
                 k + (step / steps * k_panel_bytes + step % steps * 32) / 16, step > 0);
    wgmma_commit();
}

// Issues sums = P V, of part_regs * 2 columns, as one group.
__device__ __forceinline__ void multiply_pv(float (&sums)[part_regs], const u32 *probs, u64 v)
{
    constexpr int steps = v_span / 32; // of a panel
    #pragma unroll
    for (int step = 0; step < tile_n / 32; step++)
        wgmma_pv(sums, probs + 4 * step,
                 v + (step / steps * v_panel_bytes + step % steps * 32) / 16,
                 step > 0);
    wgmma_commit();
}

// A batch and the head of K and V.
__device__ __forceinline__ int kv_pair(const fwd_params &p, const Item &item)
{
    return item.batch * (p.heads / p.group) + item.head / p.group;
}

__device__ __forceinline__ float scale_of(const fwd_params &p, const Item &item)
{
    return scale_of_scores(p.scale_log2, scale_at(p.scale_q, item.pair * p.scale_step),
                           scale_at(p.scale_k, kv_pair(p, item) * p.scale_step));
}

// Keeps the old maximum, and with it the output, as long as every P is below 2^8 (NaN is not):
// no maximum, no shuffle, no rescaling. Else does the tile again.
__device__ __forceinline__ void next_softmax(const float (&scores)[s_regs],
                                             u32 (&probs)[s_regs / 4], float (&factor)[2],
                                             Rows &rows, float scale)
{
    float sum[2];
    exponentials_e4m3(scores, s_regs, probs, scale, rows.offset, sum);
    factor[0] = factor[1] = 1.0f;
    if (__any_sync(full_warp, reaches_256(probs, s_regs / 4))) {
        float top[2];
        row_maximum(scores, s_regs, top);
        raise_rows(rows, top, scale, factor);
        lower_rows(rows, p_steps);
        exponentials_e4m3(scores, s_regs, probs, scale, rows.offset, sum);
        distrust_empty_rows(rows);
    }
    rows.sum[0] += sum[0];
    rows.sum[1] += sum[1];
}

// Divides by the row sums and scales in place, and writes the log of the sums.
__device__ __forceinline__ void normalise(float (&out)[o_regs], Rows &rows, const fwd_params &p,
                                          const Item &item, int row)
{
    float *lse = p.lse ? p.lse + (u64)item.pair * p.seq_q + row : nullptr;
    finish_scaled(out, o_regs, rows, scale_at(p.scale_v, kv_pair(p, item) * p.scale_step), lse,
                  p.seq_q - row);
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
    const u64 q_tiles = tile_of_rows(s.q[group], qk_span);
    const u64 k_tiles = tile_of_rows(s.ring, qk_span), v_tiles = tile_of_rows(s.ring, v_span);
    float scores[s_regs], out[o_regs];
    u32 probs[s_regs / 4];
    float part[part_regs], factor[2]; // that out counts when part is added
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
        const float scale = scale_of(p, item);
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
        factor[0] = factor[1] = 1.0f;
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
        lower_rows(rows, p_steps);
        exponentials_e4m3(scores, s_regs, probs, scale, rows.offset, rows.sum);
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
            pin(part, part_regs);
            wgmma_fence();
            multiply_pv(part, probs, v_tiles + v_at.slot * v_step);
            mbarrier_wait(&s.full[k_at.slot], k_at.parity);
            multiply_qk(scores, q_tile, k_tiles + k_at.slot * slot_step);
            named_arrive(1 + (group + 1) % consumers, 256);
            wgmma_wait_but_one();
            pin(part, part_regs);
            mbarrier_arrive_by(lane == 0, &s.empty[v_at.slot]);
            add_part(out + o_regs - part_regs, part, part_regs, factor);
            pin(out, o_regs);
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
            next_softmax(scores, probs, factor, rows, scale);
        }

        mbarrier_wait(&s.full[ring.slot], ring.parity);
        pin(part, part_regs);
        wgmma_fence();
        multiply_pv(part, probs, v_tiles + ring.slot * v_step);
        wgmma_wait_all();
        pin(part, part_regs);
        mbarrier_arrive_by(lane == 0, &s.empty[ring.slot]);
        add_part(out + o_regs - part_regs, part, part_regs, factor);
        advance(ring, stages);
        normalise(out, rows, p, item, row);
        const BoxAt at = {0, group_row + warp * 16, item.head, item.batch};
        store_rows(out, head_dim_v, pack_bf16, s.o[group][warp], o_stages, o_map, at);
    }
    if (lane == 0)
        tma_store_wait();
}

extern "C" __global__ void __launch_bounds__(threads, 1)
fwd8_d128_e4m3_causal_m128n128_s6_w2_opt_dyn_p40c232(
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
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
            load_keys_values(s, p, k_map, v_map);
        else if (threadIdx.x == 32)
            load_queries(s, p, q_map);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume(s, p, o_map, warpgroup - 1);
    }
}

// D (64 x 128) = or += A B^T, 32 columns; both in shared memory.
__device__ __forceinline__ void wgmma_qk(float (&d)[64], u64 a, u64 b, int add)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3\n"
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17,\n"
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33,\n"
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49,\n"
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, \n"
        "%64, %65, p, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
          "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
          "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
          "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
          "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
          "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(add));
}

// D (64 x 128) = or += A B^T, 32 keys; A in registers, B's columns are keys.
__device__ __forceinline__ void wgmma_pv(float (&d)[64], const u32 *a, u64 b, int add)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3\n"
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17,\n"
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33,\n"
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49,\n"
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, \n"
        "{%64, %65, %66, %67}, %68, p, 1, 1; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
          "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
          "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
          "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
          "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
          "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
