#include "kernels/cpu/cpu.h"

const sh_ops sh_cpu_ops = {
    .name = "cpu",
    .map = sh_cpu_map,
    .unmap = sh_cpu_unmap,
    .upload = sh_cpu_upload,
    .download = sh_cpu_download,
    .reserve = sh_cpu_reserve,
    .matrix_bytes = sh_cpu_matrix_bytes,
    .matrix_pack = sh_cpu_matrix_pack,
    .embed = sh_cpu_embed,
    .matmul = sh_cpu_matmul,
    .matmul_heads = sh_cpu_matmul_heads,
    .experts = sh_cpu_experts,
    .close = sh_cpu_close,
};
