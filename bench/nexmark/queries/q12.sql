-- Processing-time windows: bids of each bidder per 10 s of arrival time, which is the time of the records.
-- sources: bid
CREATE TABLE q12 AS
  SELECT bidder, COUNT(*) AS bids, WINDOWSTART AS window_start, WINDOWEND AS window_end
  FROM bid_arrivals WINDOW TUMBLING (SIZE 10 SECONDS)
  GROUP BY bidder /* EMIT FINAL */;

-- answer
SELECT bidder, count(*) AS bids, arrived // 10000 * 10000 AS window_start, window_start + 10000 AS window_end
FROM bid GROUP BY ALL
