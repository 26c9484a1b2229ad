/* peak FILE command...: runs the command and writes its peak memory to FILE, in KiB. Sampling from
 * outside would miss the last moments of the process. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage used;
    int status;
    pid_t pid = argc > 2 ? fork() : -1;
    if (pid == 0) execvp(argv[2], argv + 2);
    if (pid <= 0 || wait4(pid, &status, 0, &used) != pid) return 127;
    FILE *out = fopen(argv[1], "w");
    if (out == NULL || fprintf(out, "%ld\n", used.ru_maxrss) < 0 || fclose(out) != 0) return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
