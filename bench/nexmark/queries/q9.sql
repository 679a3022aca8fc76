-- Winning bids: for every auction, the highest bid while it was open, with all columns of both.
-- sources: auction bid
CREATE TABLE q9 AS
  SELECT * FROM (
    SELECT a.id, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS opened, a.expires, a.seller,
           a.category, a.extra AS extra, b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
           ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn = 1;

-- answer
SELECT * FROM (
  SELECT a.* RENAME (dateTime AS opened), b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime,
         b.extra AS bid_extra, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
WHERE rn = 1
