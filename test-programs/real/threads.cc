// A threaded C++ workload: threads N. Producers and consumers over a queue of strings, maps per thread, exceptions, futures.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

struct Queue {
    std::mutex m;
    std::condition_variable cv;
    std::queue<std::unique_ptr<std::string>> q;
    void put(std::unique_ptr<std::string> s)
    {
        std::unique_lock l(m);
        cv.wait(l, [&] { return q.size() < 1000; });
        q.push(std::move(s));
        cv.notify_all();
    }
    std::unique_ptr<std::string> get()
    {
        std::unique_lock l(m);
        cv.wait(l, [&] { return !q.empty(); });
        auto s = std::move(q.front());
        q.pop();
        cv.notify_all();
        return s;
    }
};

static long consume(Queue &in, int n)
{
    std::unordered_map<std::string, std::vector<long>> rows;
    long sum = 0;
    for (int i = 0; i < n; i++) {
        auto s = in.get();
        rows[s->substr(0, 6)].push_back((long)s->size());
        sum += (long)s->size();
    }
    return sum;
}

static long risky(int depth, long x)
{
    std::map<int, std::string> m;
    for (int i = 0; i < 8; i++)
        m[i] = std::string(20 + depth, 'm');
    if (depth == 0)
        throw std::runtime_error(std::to_string(x));
    return risky(depth - 1, x) + (long)m.size();
}

int main(int, char **argv)
{
    int scale = atoi(argv[1]);
    for (int round = 0; round < scale; round++) {
        Queue q;
        const int n = 60000;
        auto a = std::async(std::launch::async, consume, std::ref(q), n), b = std::async(std::launch::async, consume, std::ref(q), n);
        std::vector<std::thread> makers;
        for (int t = 0; t < 4; t++)
            makers.emplace_back([&q, t] {
                for (int i = 0; i < n / 2; i++)
                    q.put(std::make_unique<std::string>("key" + std::to_string(i % 777) + std::string(i % (50 + t), 'x')));
            });
        for (auto &t : makers)
            t.join();
        long sum = a.get() + b.get(), caught = 0;
        for (int i = 0; i < 1000; i++)
            try {
                risky(i % 30, i);
            } catch (const std::exception &e) {
                caught += atol(e.what());
            }
        printf("%ld %ld\n", sum, caught);
    }
    return 0;
}
